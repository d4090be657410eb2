/** Servers and UDP sockets that stay open in a namespace, and in the cgroup where programs of ebpf mode see them. */
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import type { Family } from "./cluster-objects.ts";
import type { FlowNetwork } from "./flow-network.ts";
import type { KeeperReply, KeeperRequest } from "./socket-keeper-program.ts";

const PROGRAM = new URL("socket-keeper-program.ts", import.meta.url);
const ANSWER_LIMIT_MS = 2000;

/** A UDP socket with a fixed destination. */
export interface KeptSocket {
  /** @returns the pod that answered, an errno's name, or `silence`. */
  ask(): Promise<string>;
  close(): Promise<unknown>;
}

export interface Aim {
  readonly address: string;
  readonly port: number;
  /** Otherwise it sends each datagram there. */
  readonly isConnected: boolean;
  readonly sourcePort?: number;
}

export class SocketKeeper {
  readonly #helper: HelperThread<KeeperRequest, KeeperReply>;

  /** @param namespace a name in the topology. Ends with it. */
  constructor({ topology, cgroup }: FlowNetwork, namespace: string) {
    this.#helper = new HelperThread(topology.namespace(namespace), PROGRAM, "", cgroup);
  }

  /** Listens on all addresses. @param connects UDP: it connects its socket to the client before it answers. */
  async serve(protocol: "TCP" | "UDP", port: number, name: string, connects = false): Promise<void> {
    const { text } = await this.#helper.ask({ kind: "serve", protocol, port, name, connects });
    if (text !== "") throw new Error(`no server at port ${port}: ${text}`);
  }

  async open(family: Family, { sourcePort = 0, ...aim }: Aim): Promise<KeptSocket> {
    const { socket, text } = await this.#helper.ask({ kind: "open", family, sourcePort });
    if (text !== "") throw new Error(`no socket at port ${sourcePort}: ${text}`);
    const aimed = await this.#helper.ask({ kind: "aim", socket, ...aim });
    if (aimed.text !== "") throw new Error(`not connected to ${aim.address}: ${aimed.text}`);
    const timeoutMs = stretched(ANSWER_LIMIT_MS);
    return {
      ask: async () => (await this.#helper.ask({ kind: "ask", socket, timeoutMs })).text,
      close: () => this.#helper.ask({ kind: "close", socket }),
    };
  }
}
