/** Both ends of a connection in which bytes flow continuously, each a thread in its namespace (`stream-program.ts`). */
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { whenLate } from "../../../testkit/support/patience.ts";
import type { StreamReply, StreamRequest } from "./stream-program.ts";

const PROGRAM = new URL("stream-program.ts", import.meta.url);
const PATIENCE_MS = 15_000;

/** A running end; ends with its namespace at the latest. */
export class ByteStream {
  readonly #thread: HelperThread<StreamRequest, StreamReply>;
  #bytes = 0;

  private constructor(namespace: NetworkNamespace) {
    this.#thread = new HelperThread(namespace, PROGRAM);
  }

  /** Sends to every client of the port. */
  static async source(namespace: NetworkNamespace, port: number): Promise<ByteStream> {
    const stream = new ByteStream(namespace);
    await stream.#until("it listens", stream.#thread.ask({ kind: "source", port }));
    return stream;
  }

  /** Connects and reads. */
  static async sink(namespace: NetworkNamespace, address: string, port: number): Promise<ByteStream> {
    const stream = new ByteStream(namespace);
    await stream.#until("it is connected", stream.#thread.ask({ kind: "sink", address, port }));
    return stream;
  }

  /** Waits until more bytes have come. */
  async flows(): Promise<void> {
    const before = this.#bytes;
    await this.#until("bytes come", this.#thread.ask({ kind: "flows" }));
    if (this.#bytes === before) throw new Error("the connection ended instead of carrying bytes");
  }

  /** Waits until the other side, or something between, ended the connection. */
  async ended(): Promise<void> {
    await this.#until("the end", this.#thread.ask({ kind: "ended" }));
  }

  /** Ends this side at once. */
  kill(): void {
    this.#thread.close();
  }

  async #until(what: string, reply: Promise<StreamReply>): Promise<void> {
    const late = Promise.withResolvers<never>();
    const inTime = whenLate(PATIENCE_MS, () => late.reject(new Error(`waited in vain until ${what}`)));
    try {
      this.#bytes = (await Promise.race([reply, late.promise])).bytes;
    } finally {
      inTime();
    }
  }
}
