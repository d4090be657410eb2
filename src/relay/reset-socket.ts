/** Ends a connection abruptly, so that its other end sees an error and not the proper end of what it was being sent. */
import type { Socket } from "node:net";

/**
 * Closes with a reset, at once. Node's `resetAndDestroy` first waits for everything to be written and then sends an end of
 * stream before the reset: what it does next to that is asked for alone.
 */
export function resetSocket(socket: Socket): void {
  // The kernel interface refuses while an end of stream is on its way, and would leave the socket open.
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (!isShuttingDown) Reflect.set(socket, "resetAndClosing", true);
  socket.destroy();
}
