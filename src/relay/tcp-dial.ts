/** One attempt to reach one destination. */
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { attempt } from "../logging/attempt.ts";
import type { ByteFlow } from "./byte-flow.ts";
import { clientAt, type Destination } from "./relay.ts";

/** The kernel asks a silent peer whether it is still there: otherwise one that vanished would keep its sockets. */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 60_000 };

interface DialOutcome {
  /** The attempt goes out from this address and port; not told when it failed at once. Costs some time. */
  readonly from?: ((local: Destination) => void) | undefined;
  /** The socket has read nothing yet; its taker listens for its errors from now on. */
  connected(socket: Socket): void;
  /** @param reason the name of a system error, or words. */
  failed(reason: string): void;
}

/** Begins at once; calls exactly one of the outcomes, later, unless it is cancelled before. */
export class TcpDial {
  readonly #socket: Socket;
  readonly #flow: ByteFlow;
  readonly #timer: NodeJS.Timeout;
  #isOver = false;

  /** @param flow what the socket will read through; given back when nothing comes of it. */
  constructor({ address: host, port }: Destination, timeoutMs: number, flow: ByteFlow, outcome: DialOutcome) {
    this.#flow = flow;
    this.#socket = connect({ host, port, allowHalfOpen: true, noDelay: true, ...KEEP_ALIVE, onread: flow.onread });
    const fail = (reason: string): void => {
      if (this.#isOver) return;
      this.cancel();
      outcome.failed(reason);
    };
    // The socket begins to connect in a tick of its own; after it, and before the other end can be accepted here.
    const { from } = outcome;
    if (from !== undefined) {
      process.nextTick(() => {
        const { localAddress, localPort } = this.#socket;
        if (localAddress !== undefined && localPort !== undefined) from(clientAt(localAddress, localPort));
      });
    }
    // Timers come before sockets: an answer that arrived while the process was busy is heard first.
    this.#timer = setTimeout(() => setImmediate(fail, `no answer within ${timeoutMs} ms`), timeoutMs);
    this.#socket.on("error", (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
    this.#socket.once("connect", () => {
      if (this.#isOver) return;
      if (mayComeFrom(port) && isConnectedToItself(this.#socket)) {
        fail(MET_ITSELF);
        return;
      }
      this.#finish();
      outcome.connected(this.#socket);
    });
  }

  /** Gives up. Does nothing once there was an outcome. */
  cancel(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#socket.once("close", () => this.#flow.release());
    this.#socket.destroy();
  }

  #finish(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }
}

/** The kernel connects a socket to itself when its own port happens to be the one that it asks for. */
function isConnectedToItself(socket: Socket): boolean {
  return socket.localPort === socket.remotePort && socket.localAddress === socket.remoteAddress;
}

/** Why a dial failed. */
export const MET_ITSELF = "the connection met itself: nothing listens there";

/** Whether the kernel may choose the port for what goes out: most endpoints have lower ones. */
export function mayComeFrom(port: number): boolean {
  firstOwnPort ??= readFirstOwnPort();
  return port >= firstOwnPort;
}

let firstOwnPort: number | undefined;

/** Where it is not told, any port. */
function readFirstOwnPort(): number {
  return attempt(() => Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10)) ?? 1;
}
