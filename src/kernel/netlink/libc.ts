/**
 * The few libc calls that Node.js lacks. Reading, writing and closing go through `node:fs`, which also reports their
 * errors reliably: between a call here and `errno()` the JavaScript engine may make system calls of its own.
 * The FFI package is loaded on first use, so that a program that never opens a netlink socket does not pay for it
 * (about 1.5 MB of private memory, 6 MB of resident file pages).
 */
import { createRequire } from "node:module";

/** Results are as in C: -1 means failure. */
export interface Libc {
  socket(domain: number, type: number, protocol: number): number;
  bind(fd: number, address: Uint8Array, length: number): number;
  connect(fd: number, address: Uint8Array, length: number): number;
  setsockopt(fd: number, level: number, option: number, value: Uint8Array, length: number): number;
  getsockopt(fd: number, level: number, option: number, value: Uint8Array, length: Uint8Array): number;
  getsockname(fd: number, address: Uint8Array, length: Uint8Array): number;
  flock(fd: number, operation: number): number;
  eventfd(initial: number, flags: number): number;
  /** Both arguments are u64 soft · u64 hard; `null` skips the write or the read. Process 0 is this one. */
  prlimit(process: number, resource: number, wanted: Uint8Array | null, before: Uint8Array | null): number;
  /** The address of the bytes, for structures that point to them. The caller must keep them alive until the system call returns. */
  addressOf(bytes: Uint8Array): bigint;
  madvise(address: bigint, length: bigint, advice: number): number;
  /** Receives many datagrams; the headers are `struct mmsghdr`. */
  recvmmsg(fd: number, headers: Uint8Array, count: number, flags: number, timeout: null): number;
  /** Gives free pages of the C library's pools back to the system. */
  mallocTrim(pad: number): number;
  /** `poll` without waiting. */
  pollNow(fds: Uint8Array, count: number): number;
  /** `poll` on a worker thread; resolves to its result. The bytes must stay untouched until then. */
  poll(fds: Uint8Array, count: number, timeoutMs: number): Promise<number>;
  /** The errno of the last failed call, most of the time: see {@link reliableErrno}. */
  errno(): number;
}

type Koffi = typeof import("koffi");

/** The engine rarely overwrites errno twice in a row. */
const ERRNO_ATTEMPTS = 5;

/** The errno of a failing `call`, repeated until the same comes twice in a row: it must be safe to repeat. -1 if it succeeds at once. */
export function reliableErrno(calls: Libc, call: () => number): number {
  let errno = -1;
  for (let attempt = 0; attempt < ERRNO_ATTEMPTS; attempt++) {
    if (call() >= 0) return errno;
    const seen = calls.errno();
    if (seen === errno) return errno;
    errno = seen;
  }
  return errno;
}

let loaded: Libc | undefined;

/** The C library of this process. @throws Error when it is not glibc. */
export function libc(): Libc {
  loaded ??= load();
  return loaded;
}

function load(): Libc {
  // `require` and not `import`: koffi's ES module loads far more of Node.js at start (3 MB more).
  const koffi: Koffi = createRequire(import.meta.url)("koffi");
  const library = openLibrary(koffi);
  const poll = library.func("int poll(uint8_t *fds, unsigned long count, int timeout)");
  return {
    socket: library.func("int socket(int domain, int type, int protocol)"),
    bind: library.func("int bind(int fd, uint8_t *address, uint32_t length)"),
    connect: library.func("int connect(int fd, uint8_t *address, uint32_t length)"),
    setsockopt: library.func("int setsockopt(int fd, int level, int option, uint8_t *value, uint32_t length)"),
    getsockopt: library.func("int getsockopt(int fd, int level, int option, uint8_t *value, uint8_t *length)"),
    getsockname: library.func("int getsockname(int fd, uint8_t *address, uint8_t *length)"),
    flock: library.func("int flock(int fd, int operation)"),
    eventfd: library.func("int eventfd(unsigned int initial, int flags)"),
    prlimit: library.func("int prlimit(int process, int resource, uint8_t *wanted, uint8_t *before)"),
    addressOf: (bytes) => BigInt(koffi.address(bytes)),
    madvise: library.func("int madvise(uintptr_t address, size_t length, int advice)"),
    recvmmsg: library.func("int recvmmsg(int fd, uint8_t *headers, unsigned int count, int flags, uint8_t *timeout)"),
    mallocTrim: library.func("int malloc_trim(size_t pad)"),
    pollNow: (fds, count) => poll(fds, count, 0),
    poll: (fds, count, timeoutMs) =>
      new Promise((resolve, reject) => {
        poll.async(fds, count, timeoutMs, (error: Error | null, result: number) => {
          if (error === null) resolve(result);
          else reject(error);
        });
      }),
    errno: () => koffi.errno(),
  };
}

/**
 * Opens the C library, for calls that are declared in other files. Only glibc: the pinned Node.js is linked to it, and npm refuses to
 * install the package elsewhere (package.json, `libc`).
 *
 * @throws Error when it cannot be opened.
 */
export function openLibrary(koffi: Koffi): ReturnType<Koffi["load"]> {
  try {
    return koffi.load("libc.so.6");
  } catch (error) {
    throw new Error("cannot open glibc (libc.so.6), which netlink needs", { cause: error });
  }
}
