/** Failures of netlink, in one class with a stable `code`. */
import { constants } from "node:os";

/** The kernel's errno name (`ENOENT`), or one of ours for what has no errno. */
export type NetlinkErrorCode =
  /** A dump ran while its subject changed: what was visited may be incomplete or inconsistent. */
  | "interrupted"
  /** The receive buffer overflowed: answers or notifications were lost. */
  | "overrun"
  /** Bytes that are not a netlink message, or not the expected one. */
  | "malformed"
  /** The batch does not fit into a send buffer that we are allowed to ask for. */
  | "too_large"
  /** The kernel said nothing in time. */
  | "timeout"
  /** The socket was closed. */
  | "closed"
  | `E${string}`;

/** The request that an error answers. */
export interface FailedRequest {
  /** Position in the {@link MessageBuffer} that was sent. */
  readonly index: number;
  readonly type: number;
  readonly sequence: number;
}

export interface NetlinkErrorFacts {
  readonly errno?: number | undefined;
  readonly request?: FailedRequest | undefined;
  /** The kernel's own explanation (extended ACK). */
  readonly kernelMessage?: string | undefined;
  /** Offset of the refused attribute from the start of the request, and its type. */
  readonly offset?: number | undefined;
  readonly attribute?: number | undefined;
  /** Type of an attribute that the kernel missed. */
  readonly missingAttribute?: number | undefined;
}

export class NetlinkError extends Error {
  override readonly name = "NetlinkError";
  readonly code: NetlinkErrorCode;
  readonly facts: NetlinkErrorFacts;
  constructor(code: NetlinkErrorCode, message: string, facts: NetlinkErrorFacts = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.facts = facts;
  }
}

/** Names that `os.constants` lacks. */
const EXTRA_ERRNO = new Map([
  [85, "ERESTART"],
  [524, "ENOTSUPP"],
]);

/** The name of a positive errno: 2 → `ENOENT`; `E<number>` when it has none. Pure. */
export function errnoName(errno: number): `E${string}` {
  for (const [name, value] of Object.entries(constants.errno)) {
    // Two names of one number exist (EAGAIN and EWOULDBLOCK, EOPNOTSUPP and ENOTSUP): the kernel's spelling wins.
    if (value === errno && name !== "EWOULDBLOCK" && name !== "ENOTSUP") return toErrnoName(name);
  }
  return toErrnoName(EXTRA_ERRNO.get(errno) ?? `E${errno}`);
}

function toErrnoName(name: string): `E${string}` {
  return `E${name.slice(1)}`;
}

/** An error for a failed libc call. */
export function systemError(call: string, errno: number): NetlinkError {
  const name = errnoName(errno);
  return new NetlinkError(name, `netlink: ${call}: ${name}`, { errno });
}

/** An error for bytes that cannot be read, with a dump of them. `offset` counts from the start of `bytes`. */
export function malformed(what: string, bytes: Uint8Array, offset: number): NetlinkError {
  return new NetlinkError("malformed", `netlink: ${what} at byte ${offset} of ${bytes.length}\n${hexDump(bytes)}`, {
    offset,
  });
}

/** Whether the kernel refused with this code. */
export function hasCode(error: unknown, code: NetlinkErrorCode): boolean {
  return error instanceof NetlinkError && error.code === code;
}

/** For `catch`: undefined for a refusal with this code; everything else is thrown again. */
export function undefinedIf(code: NetlinkErrorCode): (error: unknown) => undefined {
  return (error) => {
    if (!hasCode(error, code)) throw error;
  };
}

/** The object is not there. */
export const isNotFound = (error: unknown): boolean => hasCode(error, "ENOENT");

/** A dump was disturbed and should be repeated. */
export const isInterrupted = (error: unknown): boolean => hasCode(error, "interrupted");

const ROW = 16;

/**
 * Bytes as people read them, in lines of 16: offset, the bytes in groups of four, and the printable characters. Pure.
 *
 * @param maxBytes what lies beyond is only counted.
 */
export function hexDump(bytes: Uint8Array, maxBytes = 512): string {
  const shown = Math.min(bytes.length, maxBytes);
  const lines: string[] = [];
  for (let row = 0; row < shown; row += ROW) {
    const slice = bytes.subarray(row, Math.min(row + ROW, shown));
    const hex = Array.from(slice, (byte, index) => byte.toString(16).padStart(2, "0") + (index % 4 === 3 ? " " : ""));
    const text = Array.from(slice, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "."));
    lines.push(`${row.toString(16).padStart(4, "0")}  ${hex.join("").padEnd(ROW * 2 + 4)} ${text.join("")}`);
  }
  if (shown < bytes.length) lines.push(`…and ${bytes.length - shown} bytes more`);
  return lines.join("\n");
}
