/** One attempt to reach one destination. */
import { connect, type Socket } from "node:net";
import type { ByteFlow } from "./byte-flow.ts";
import { clientAt, type Destination, isSame } from "./relay.ts";

/** The kernel probes a silent peer: otherwise one that vanished would keep its sockets. */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 60_000 };

interface DialOutcome {
  /** The local address and port of the attempt; not called if it failed at once. */
  from(local: Destination): void;
  /** The socket has read nothing yet; its new owner handles its errors from now on. */
  connected(socket: Socket): void;
  /** @param reason the name of a system error, or a message. */
  failed(reason: string): void;
}

/**
 * Starts at once, and later calls either `connected` or `failed`, unless it is cancelled before.
 * @param flow what the socket will read through; released if the dial fails or is cancelled.
 * @returns a function that cancels the dial. It does nothing after an outcome.
 */
export function dialTcp(destination: Destination, timeoutMs: number, flow: ByteFlow, outcome: DialOutcome): () => void {
  const { address: host, port } = destination;
  const socket = connect({ host, port, allowHalfOpen: true, noDelay: true, ...KEEP_ALIVE, onread: flow.onread });
  let isOver = false;
  const finish = (): void => {
    isOver = true;
    clearTimeout(timer);
  };
  const giveUp = (): void => {
    if (isOver) return;
    finish();
    socket.once("close", () => flow.release());
    socket.destroy();
  };
  const fail = (reason: string): void => {
    if (isOver) return;
    giveUp();
    outcome.failed(reason);
  };
  let local: Destination | undefined;
  // The socket starts to connect in its own tick; this runs after it, and before this process can accept the other end.
  process.nextTick(() => {
    const { localAddress, localPort } = socket;
    if (localAddress === undefined || localPort === undefined) return;
    local = clientAt(localAddress, localPort);
    outcome.from(local);
  });
  // Node.js runs timers before socket events: an answer that arrived while the process was busy must count.
  const timer = setTimeout(() => setImmediate(fail, `no answer within ${timeoutMs} ms`), timeoutMs);
  socket.on("error", (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
  socket.once("connect", () => {
    if (local !== undefined && isSame(local, destination)) fail(MET_ITSELF);
    if (isOver) return;
    finish();
    outcome.connected(socket);
  });
  return giveUp;
}

/** Why a dial failed: the kernel connects a socket to itself if its own port happens to be the destination's. */
export const MET_ITSELF = "the socket connected to itself: nothing listens there";
