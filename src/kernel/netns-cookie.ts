/** The kernel's number (cookie) of this process's network namespace; not reused until the machine restarts. Linux 5.14. */
import { closeSync } from "node:fs";
import { libc } from "./netlink/libc.ts";

const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOL_SOCKET = 1;
const SO_NETNS_COOKIE = 71;

/** @throws Error when the kernel does not tell the cookie. */
export function ownNetnsCookie(): bigint {
  const calls = libc();
  // A socket of any kind knows the cookie.
  const fd = calls.socket(AF_UNIX, SOCK_DGRAM, 0);
  if (fd < 0) throw new Error(`no socket to ask for the network namespace: errno ${calls.errno()}`);
  try {
    const value = new BigUint64Array(1);
    const length = new Uint32Array([value.byteLength]);
    const bytes = new Uint8Array(value.buffer);
    if (calls.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, bytes, new Uint8Array(length.buffer)) < 0) {
      throw new Error(`the kernel does not tell the cookie of the network namespace: errno ${calls.errno()}`);
    }
    return value[0] ?? 0n;
  } finally {
    closeSync(fd);
  }
}
