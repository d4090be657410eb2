/** One attempt to reach one destination. */
import { connect, type Socket } from "node:net";
import type { ByteFlow } from "./byte-flow.ts";
import { clientAt, type Destination, isSame } from "./relay.ts";

/** The kernel asks a silent peer whether it is still there: otherwise one that vanished would keep its sockets. */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 60_000 };

interface DialOutcome {
  /** The attempt goes out from this address and port; not told when it failed at once. */
  from(local: Destination): void;
  /** The socket has read nothing yet; its taker listens for its errors from now on. */
  connected(socket: Socket): void;
  /** @param reason the name of a system error, or words. */
  failed(reason: string): void;
}

/**
 * Begins at once; calls exactly one of the outcomes, later, unless it is given up before.
 * @param flow what the socket will read through; given back when nothing comes of it.
 * @returns gives up. Does nothing once there was an outcome.
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
  // The socket begins to connect in a tick of its own; after it, and before the other end can be accepted here.
  process.nextTick(() => {
    const { localAddress, localPort } = socket;
    if (localAddress === undefined || localPort === undefined) return;
    local = clientAt(localAddress, localPort);
    outcome.from(local);
  });
  // Timers come before sockets: an answer that arrived while the process was busy is heard first.
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

/** Why a dial failed: the kernel connects a socket to itself when its own port happens to be the one that it asks for. */
export const MET_ITSELF = "the connection met itself: nothing listens there";
