/** An established TCP connection that a test keeps idle during some event and uses afterwards. */
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import type { BackendAnswer } from "../../../testkit/net/messages.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import type { Address } from "./asking.ts";
import type { HeldReply, HeldRequest } from "./held-connection-program.ts";

const PROGRAM = new URL("held-connection-program.ts", import.meta.url);

type Holder = HelperThread<HeldRequest, HeldReply>;

/** One thread for all connections from a namespace. */
const holders = new WeakMap<NetworkNamespace, Holder>();

function holderIn(namespace: NetworkNamespace, cgroup: string | undefined): Holder {
  const holder = holders.get(namespace) ?? new HelperThread<HeldRequest, HeldReply>(namespace, PROGRAM, "", cgroup);
  holders.set(namespace, holder);
  return holder;
}

export class HeldConnection {
  readonly #holder: Holder;
  readonly #connection: number;

  private constructor(holder: Holder, connection: number) {
    this.#holder = holder;
    this.#connection = connection;
  }

  /**
   * Resolves when the connection is established; it ends with its namespace at the latest.
   * @param cgroup of all connections from there: where programs of ebpf mode see them.
   */
  static async open(from: NetworkNamespace, { address, port }: Address, cgroup?: string): Promise<HeldConnection> {
    const holder = holderIn(from, cgroup);
    const { connection, text } = await holder.ask({ kind: "open", address, port });
    if (text !== "") throw new Error(`no connection to ${address} port ${port}: ${text}`);
    return new HeldConnection(holder, connection);
  }

  /** Makes the one request. @returns the pod that answered, or how the connection ended. */
  async use(): Promise<string> {
    const { text } = await this.#holder.ask({ kind: "use", connection: this.#connection });
    if (text === "") return "the connection was silent";
    return text.startsWith("{") ? (JSON.parse(text) as BackendAnswer).pod : text;
  }

  /** Ends the connection with a reset. */
  async reset(): Promise<void> {
    await this.#holder.ask({ kind: "reset", connection: this.#connection });
  }
}
