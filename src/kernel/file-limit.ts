/** How many files and sockets this process may have open (RLIMIT_NOFILE): reference userspace.md §1.1. */
import { HOST_IS_LITTLE_ENDIAN } from "./netlink/constants.ts";
import { errnoName } from "./netlink/errors.ts";
import { libc, reliableErrno } from "./netlink/libc.ts";

/** What upstream sets, and what we want at least. */
const WANTED_OPEN_FILES = 64_000;

const RLIMIT_NOFILE = 7;
/** u64 soft · u64 hard, in the host's byte order */
const RLIMIT_BYTES = 16;

export interface FileLimits {
  /** The limit in force; `Infinity` when there is none. */
  readonly soft: number;
  /** How far the soft one may be raised without privilege. */
  readonly hard: number;
}

/** The calls that {@link raiseFileLimit} needs. */
export interface FileLimitCalls {
  read(): FileLimits;
  /** @returns why it could not be set, or `undefined` when it is. */
  write(limits: FileLimits): string | undefined;
}

interface RaisedFileLimit {
  /** The limit now in force. */
  readonly limit: number;
  /** Why it is lower than wanted, and what to do; `undefined` when it is not. */
  readonly problem: string | undefined;
}

/** Raises the limit to `wanted`, or as far as possible; never lowers it. Throws only when there is no C library. */
export function raiseFileLimit(
  wanted = WANTED_OPEN_FILES,
  calls: FileLimitCalls = process.platform === "win32" ? unlimitedCalls : systemCalls,
): RaisedFileLimit {
  const before = calls.read();
  if (before.soft >= wanted) return { limit: before.soft, problem: undefined };
  const reason = calls.write({ soft: wanted, hard: Math.max(wanted, before.hard) });
  if (reason === undefined) return { limit: wanted, problem: undefined };
  if (before.soft < before.hard) calls.write({ soft: before.hard, hard: before.hard });
  const { soft } = calls.read();
  const advice = "set LimitNOFILE= of the service, or --ulimit nofile= of the container";
  return {
    limit: soft,
    problem: `at most ${soft} open files, ${wanted} wanted: raising the limit failed (${reason}); ${advice}`,
  };
}

/**
 * Raises the soft limit as far as the hard one allows, up to what is wanted at least; the hard one is the operator's to set.
 *
 * @returns the limit now in force.
 */
export function raiseSoftFileLimit(
  wanted = WANTED_OPEN_FILES,
  calls: FileLimitCalls = process.platform === "win32" ? unlimitedCalls : systemCalls,
): number {
  const { soft, hard } = calls.read();
  const aim = Math.min(wanted, hard);
  if (soft >= aim) return soft;
  return calls.write({ soft: aim, hard }) === undefined ? aim : calls.read().soft;
}

/** Windows has no such limit, and no such calls. */
const unlimitedCalls: FileLimitCalls = {
  read: () => ({ soft: Number.POSITIVE_INFINITY, hard: Number.POSITIVE_INFINITY }),
  write: () => undefined,
};

const systemCalls: FileLimitCalls = {
  read() {
    const now = Buffer.alloc(RLIMIT_BYTES);
    if (libc().prlimit(0, RLIMIT_NOFILE, null, now) < 0) throw new Error("prlimit(RLIMIT_NOFILE) cannot be read");
    return { soft: toLimit(readU64(now, 0)), hard: toLimit(readU64(now, 8)) };
  },
  write({ soft, hard }) {
    const wanted = Buffer.alloc(RLIMIT_BYTES);
    writeU64(wanted, 0, soft);
    writeU64(wanted, 8, hard);
    const set = (): number => libc().prlimit(0, RLIMIT_NOFILE, wanted, null);
    return set() < 0 ? errnoName(reliableErrno(libc(), set)) : undefined;
  },
};

const UNLIMITED = 2n ** 64n - 1n;

function toLimit(value: bigint): number {
  return value === UNLIMITED ? Number.POSITIVE_INFINITY : Number(value);
}

function readU64(bytes: Buffer, offset: number): bigint {
  return HOST_IS_LITTLE_ENDIAN ? bytes.readBigUInt64LE(offset) : bytes.readBigUInt64BE(offset);
}

function writeU64(bytes: Buffer, offset: number, limit: number): void {
  const value = limit === Number.POSITIVE_INFINITY ? UNLIMITED : BigInt(limit);
  if (HOST_IS_LITTLE_ENDIAN) bytes.writeBigUInt64LE(value, offset);
  else bytes.writeBigUInt64BE(value, offset);
}
