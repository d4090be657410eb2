/** Netlink errors: one class with a stable `code`. */
import { constants } from "node:os";

/** The kernel's errno name (`ENOENT`), or a name of our own for failures without an errno. */
export type NetlinkErrorCode =
  /** The table changed during a dump: the visited objects may be incomplete or inconsistent. */
  | "interrupted"
  /** The receive buffer overflowed: answers or notifications were lost. */
  | "overrun"
  /** The bytes are not a netlink message, or not the expected one. */
  | "malformed"
  /** The batch does not fit into the largest send buffer that we may request. */
  | "too_large"
  /** The kernel did not answer in time. */
  | "timeout"
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
  /** Offset of the rejected attribute from the start of the request, and its type. */
  readonly offset?: number | undefined;
  readonly attribute?: number | undefined;
  /** Type of a required attribute that the request lacks. */
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

/** Some numbers have two names (EAGAIN and EWOULDBLOCK, EOPNOTSUPP and ENOTSUP): the kernel's spelling wins. */
const NOT_OF_KERNEL: ReadonlySet<string> = new Set(["EWOULDBLOCK", "ENOTSUP"]);
const ERRNO_NAMES: ReadonlyMap<number, string> = new Map([
  ...Object.entries(constants.errno).flatMap(([name, value]) =>
    NOT_OF_KERNEL.has(name) ? [] : [[value, name] as const],
  ),
  // Names that `os.constants` lacks.
  ...([
    [85, "ERESTART"],
    [524, "ENOTSUPP"],
  ] as const),
]);

/** The name of a positive errno: 2 → `ENOENT`; `E<number>` if it has none. */
export function errnoName(errno: number): `E${string}` {
  return toErrnoName(ERRNO_NAMES.get(errno) ?? `E${errno}`);
}

function toErrnoName(name: string): `E${string}` {
  return `E${name.slice(1)}`;
}

/** An error for a failed libc call. */
export function systemError(call: string, errno: number): NetlinkError {
  const name = errnoName(errno);
  return new NetlinkError(name, `netlink: ${call}: ${name}`, { errno });
}

/** An error for bytes that cannot be parsed, with a hex dump. `offset` counts from the start of `bytes`. */
export function malformed(what: string, bytes: Uint8Array, offset: number): NetlinkError {
  return new NetlinkError("malformed", `netlink: ${what} at byte ${offset} of ${bytes.length}\n${hexDump(bytes)}`, {
    offset,
  });
}

/** Whether it is a {@link NetlinkError} with this code. */
export function hasCode(error: unknown, code: NetlinkErrorCode): boolean {
  return error instanceof NetlinkError && error.code === code;
}

/** For `catch`: turns an error with this code into undefined and rethrows all others. */
export function undefinedIf(code: NetlinkErrorCode): (error: unknown) => undefined {
  return (error) => {
    if (!hasCode(error, code)) throw error;
  };
}

/** Whether the object does not exist. */
export const isNotFound = (error: unknown): boolean => hasCode(error, "ENOENT");

/** Whether a dump was interrupted and should be repeated. */
export const isInterrupted = (error: unknown): boolean => hasCode(error, "interrupted");

const ROW = 16;

/**
 * A hex dump in lines of 16 bytes: offset, the bytes in groups of four, and the printable characters.
 *
 * @param maxBytes bytes beyond this limit are only counted.
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
