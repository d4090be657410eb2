/**
 * Lets the kernel find out that the other end of a TCP connection is gone, with or without data on the way. A firewall that
 * forgot the connection and a machine that lost its power say nothing, and a reader could wait without end.
 */

import type { Socket } from "node:net";
import { PROTOCOL_NUMBERS } from "../net/protocol.ts";
import { libc } from "./netlink/libc.ts";

/** Silence after which the kernel sends the first keep-alive probe. */
const PROBE_AFTER_MS = 30_000;
/** Time between two probes. */
const PROBE_EVERY_MS = 2_000;
/** Probes without an answer that end the connection: after 40 s in all. */
const PROBES = 5;
/** Unacknowledged data ends the connection after this long, too; the kernel's own default is a quarter of an hour. */
const UNACKNOWLEDGED_MS = 40_000;

const TCP_USER_TIMEOUT = 18;

/** Ends the connected socket with ETIMEDOUT within 40 s after its peer has become unreachable. */
export function detectDeadPeer(socket: Socket): void {
  socket.setKeepAlive(true, PROBE_AFTER_MS, PROBE_EVERY_MS, PROBES);
  // Elsewhere the probes must do.
  if (process.platform !== "linux") return;
  const fd = descriptorOf(socket);
  if (fd === undefined) return;
  const value = new Uint8Array(new Uint32Array([UNACKNOWLEDGED_MS]).buffer);
  // A kernel that refuses leaves what the probes find, which is nearly everything.
  libc().setsockopt(fd, PROTOCOL_NUMBERS.TCP, TCP_USER_TIMEOUT, value, value.length);
}

/** Node has no way to ask for it. */
function descriptorOf(socket: object): number | undefined {
  const handle: unknown = "_handle" in socket ? socket._handle : undefined;
  if (typeof handle !== "object" || handle === null || !("fd" in handle)) return undefined;
  return typeof handle.fd === "number" && handle.fd >= 0 ? handle.fd : undefined;
}
