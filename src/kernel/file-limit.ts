/** The limit on this process's open files and sockets (RLIMIT_NOFILE): reference userspace.md §1.1. */
import { errnoName } from "./netlink/errors.ts";
import { libc, reliableErrno } from "./netlink/libc.ts";

/** Upstream's value, and our minimum. */
const WANTED_OPEN_FILES = 64_000;

const RLIMIT_NOFILE = 7;

export interface FileLimits {
  /** The limit in force; `Infinity` when there is none. */
  readonly soft: number;
  /** How far the soft limit may be raised without privilege. */
  readonly hard: number;
}

/** The calls that {@link raiseFileLimit} needs. */
export interface FileLimitCalls {
  read(): FileLimits;
  /** @returns why it could not be set; `undefined` on success. */
  write(limits: FileLimits): string | undefined;
}

/** Raises the limit to `wanted`, or as far as possible; never lowers it. @throws Error if the limit cannot be read. */
export function raiseFileLimit(
  wanted = WANTED_OPEN_FILES,
  calls: FileLimitCalls = process.platform === "win32" ? unlimitedCalls : systemCalls,
): {
  /** The limit now in force. */
  readonly limit: number;
  /** Why it is lower than wanted, and what to do about it; otherwise `undefined`. */
  readonly problem: string | undefined;
} {
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
 * Raises the soft limit to `wanted`, or as far as the hard limit allows. The hard limit is the operator's to set.
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

/** For Windows, which has neither the limit nor the calls. */
const unlimitedCalls: FileLimitCalls = {
  read: () => ({ soft: Number.POSITIVE_INFINITY, hard: Number.POSITIVE_INFINITY }),
  write: () => undefined,
};

const systemCalls: FileLimitCalls = {
  read() {
    const now = new BigUint64Array(2);
    const bytes = new Uint8Array(now.buffer);
    if (libc().prlimit(0, RLIMIT_NOFILE, null, bytes) < 0) throw new Error("prlimit(RLIMIT_NOFILE) cannot be read");
    const [soft = 0n, hard = 0n] = now;
    return { soft: toLimit(soft), hard: toLimit(hard) };
  },
  write({ soft, hard }) {
    const limits = [soft, hard].map((limit) => (limit === Number.POSITIVE_INFINITY ? UNLIMITED : BigInt(limit)));
    const wanted = new Uint8Array(new BigUint64Array(limits).buffer);
    const set = (): number => libc().prlimit(0, RLIMIT_NOFILE, wanted, null);
    return set() < 0 ? errnoName(reliableErrno(libc(), set)) : undefined;
  },
};

const UNLIMITED = 2n ** 64n - 1n;

function toLimit(value: bigint): number {
  return value === UNLIMITED ? Number.POSITIVE_INFINITY : Number(value);
}
