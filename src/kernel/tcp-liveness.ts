/**
 * Makes the kernel detect a dead peer of a TCP connection, with or without data in flight. A firewall that forgot the
 * connection, or a machine that lost power, sends nothing, and a reader could wait forever.
 */

import type { Socket } from "node:net";
import { PROTOCOL_NUMBERS } from "../net/protocol.ts";
import { libc } from "./netlink/libc.ts";

/** Silence after which the kernel sends the first keep-alive probe. */
const PROBE_AFTER_MS = 30_000;
/** Interval between probes. */
const PROBE_EVERY_MS = 2_000;
/** This many unanswered probes end the connection, after 40 s in all. */
const PROBES = 5;
/** Unacknowledged data ends the connection after this long; the kernel's default is a quarter of an hour. */
const UNACKNOWLEDGED_MS = 40_000;

const TCP_USER_TIMEOUT = 18;

/** Ends the connected socket with ETIMEDOUT within 40 s after its peer has become unreachable. */
export function detectDeadPeer(socket: Socket): void {
  socket.setKeepAlive(true, PROBE_AFTER_MS, PROBE_EVERY_MS, PROBES);
  // Other systems rely on the probes alone.
  if (process.platform !== "linux") return;
  const fd = descriptorOf(socket);
  if (fd === undefined) return;
  const value = new Uint8Array(new Uint32Array([UNACKNOWLEDGED_MS]).buffer);
  // If the kernel rejects it, the probes still find nearly everything.
  libc().setsockopt(fd, PROTOCOL_NUMBERS.TCP, TCP_USER_TIMEOUT, value, value.length);
}

/** Node.js has no public way to get it. */
function descriptorOf(socket: object): number | undefined {
  const handle: unknown = "_handle" in socket ? socket._handle : undefined;
  if (typeof handle !== "object" || handle === null || !("fd" in handle)) return undefined;
  return typeof handle.fd === "number" && handle.fd >= 0 ? handle.fd : undefined;
}
