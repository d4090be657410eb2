/** Both ends of a connection in which bytes never stop to flow (`stream-process.ts`). */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";

const PROGRAM = fileURLToPath(new URL("stream-process.ts", import.meta.url));
const PATIENCE_MS = 15_000;

/** A running end; ends with its namespace at the latest. */
export class ByteStream {
  readonly #child: ChildProcess;
  #bytes = 0;
  #isOpen = false;
  #hasEnded = false;
  #onLine: () => void = () => {};

  private constructor(namespace: NetworkNamespace, args: readonly string[]) {
    this.#child = namespace.spawn([process.execPath, PROGRAM, ...args], { stdio: ["ignore", "pipe", "inherit"] });
    if (this.#child.stdout === null) throw new Error("a piped child has a standard output");
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      const [word, count] = line.split(" ");
      if (word === "open") this.#isOpen = true;
      else if (word === "bytes") this.#bytes = Number(count);
      else if (word === "end") this.#hasEnded = true;
      this.#onLine();
    });
  }

  /** Sends to every client of the port. */
  static async source(namespace: NetworkNamespace, port: number): Promise<ByteStream> {
    const stream = new ByteStream(namespace, ["source", String(port)]);
    await stream.#until("it listens", () => stream.#isOpen);
    return stream;
  }

  /** Connects and reads. */
  static async sink(namespace: NetworkNamespace, address: string, port: number): Promise<ByteStream> {
    const stream = new ByteStream(namespace, ["sink", address, String(port)]);
    await stream.#until("it is connected", () => stream.#isOpen || stream.#hasEnded);
    return stream;
  }

  /** Waits until more bytes have come. */
  async flows(): Promise<void> {
    const before = this.#bytes;
    await this.#until("bytes come", () => this.#bytes > before);
  }

  /** Waits until the other side, or something between, ended the connection. */
  async ended(): Promise<void> {
    await this.#until("the end", () => this.#hasEnded);
  }

  /** Ends this side at once. */
  kill(): void {
    signalChild(this.#child, "SIGKILL");
  }

  #until(what: string, condition: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`waited ${PATIENCE_MS} ms until ${what}`)), PATIENCE_MS);
      this.#onLine = () => {
        if (!condition()) return;
        clearTimeout(timer);
        resolve();
      };
      this.#onLine();
    });
  }
}
