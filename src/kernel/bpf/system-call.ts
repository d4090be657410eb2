/**
 * The system call bpf(2), for which the C library has no function (reference ebpf-programs.md §3.1). Loaded on first use.
 */
import { createRequire } from "node:module";
import { endianness } from "node:os";
import { errnoName } from "../netlink/errors.ts";
import { libc, openLibrary } from "../netlink/libc.ts";
import { type BpfCommand, COMMANDS, OBJECT_INFO } from "./attributes.ts";
import { BpfError } from "./bpf-error.ts";
import { encode } from "./layout.ts";

const CALL_NUMBERS: Readonly<Record<string, number>> = { x64: 321, arm64: 280 };

/** The engine may make its own system calls before we read `errno`; rarely twice in a row. */
const ERRNO_ATTEMPTS = 5;
/** PROT_READ and PROT_WRITE; MAP_SHARED. */
const READ_AND_WRITE = 3;
const SHARED = 1;

let loaded: ReturnType<typeof load> | undefined;

function load() {
  const number = CALL_NUMBERS[process.arch];
  if (number === undefined || endianness() !== "LE") {
    throw new BpfError("unsupported", `bpf: processor ${process.arch} is not supported, only x64 and arm64`);
  }
  const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
  const library = openLibrary(koffi);
  const invoke = library.func("long syscall(long number, long command, uint8_t *attributes, long size)");
  const map = library.func("intptr_t mmap(void *address, size_t length, int access, int flags, int fd, long offset)");
  return {
    invoke: (command: number, attributes: Uint8Array): number =>
      Number(invoke(number, command, attributes, attributes.length)),
    addressOf: (bytes: Uint8Array): bigint => BigInt(koffi.address(bytes)),
    map: (length: number, fd: number): bigint => BigInt(map(null, length, READ_AND_WRITE, SHARED, fd, 0)),
    unmap: library.func("int munmap(uintptr_t address, size_t length)"),
    view: (address: bigint, length: number): ArrayBuffer => koffi.view(address, length),
  };
}

/** Kernel memory mapped into this process; empty after its release. */
export interface MappedMemory {
  readonly buffer: ArrayBuffer;
  release(): void;
}

/** Maps the memory behind a descriptor. @param what for error messages. @throws BpfError with the kernel's errno. */
export function mapMemory(fd: number, length: number, what: string): MappedMemory {
  loaded ??= load();
  const { map, unmap, view } = loaded;
  const address = map(length, fd);
  if (address === -1n) {
    const name = errnoName(libc().errno());
    throw new BpfError(name, `bpf: mmap of ${what}: ${name}`);
  }
  const buffer = view(address, length);
  const release = (): void => {
    // Remaining views become empty; accessing unmapped memory would kill the process.
    buffer.transfer(0);
    unmap(address, length);
  };
  return { buffer, release };
}

/**
 * What the next call's attributes point to, kept alive until it returns: the engine does not see addresses as
 * references, and compiled code drops variables after their last use.
 */
const pointedTo: Uint8Array[] = [];

/**
 * Calls the kernel.
 *
 * @param attributes overwritten with the kernel's answers. @param what for error messages: `map services`.
 * @returns the command's result: a descriptor, or 0. @throws BpfError with the kernel's errno.
 */
export function bpf(command: BpfCommand, attributes: Uint8Array, what: string): number {
  const { result, errno } = tryBpf(command, attributes);
  if (result >= 0) return result;
  throw failure(command, errno, what);
}

/** The error of a failed command, with advice. @param what failed, or the reason. */
export function failure(command: BpfCommand, errno: number, what?: string): BpfError {
  const name = errnoName(errno);
  return new BpfError(name, `bpf: ${command}${what === undefined ? "" : ` of ${what}`}: ${name}${hint(name)}`);
}

/** As {@link bpf}, but returns a failure. Repeats the call until it has seen the same cause twice in a row. */
export function tryBpf(
  command: BpfCommand,
  attributes: Uint8Array,
): { readonly result: number; readonly errno: number } {
  loaded ??= load();
  const asked = attributes.slice();
  let errno = -1;
  try {
    for (let attempt = 0; attempt < ERRNO_ATTEMPTS; attempt++) {
      if (attempt > 0) attributes.set(asked);
      const result = loaded.invoke(COMMANDS[command], attributes);
      if (result >= 0) return { result, errno: 0 };
      const seen = libc().errno();
      if (seen === errno) break;
      errno = seen;
    }
    return { result: -1, errno };
  } finally {
    pointedTo.length = 0;
  }
}

/**
 * The kernel's information about an open map, program or link.
 * @param size of the requested struct. @param asked what the struct holds before the call. @throws BpfError
 */
export function objectInfo(fd: number, size: number, what: string, asked?: () => Uint8Array): Uint8Array {
  const info = asked === undefined ? fixedBytes(size) : fixedCopy(asked());
  bpf("OBJ_GET_INFO_BY_FD", encode(OBJECT_INFO, { fd, infoLength: info.length, info: addressOf(info) }), what);
  return info;
}

/** The address of bytes, which stay there until the next call has returned. Only for {@link fixedBytes}: others may move. */
export function addressOf(bytes: Uint8Array): bigint {
  loaded ??= load();
  pointedTo.push(bytes);
  return BigInt.asUintN(64, loaded.addressOf(bytes));
}

/** Zeroed bytes at a fixed address: the engine keeps small arrays in memory that it moves. */
export function fixedBytes(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new ArrayBuffer(size));
}

/** A copy of the bytes at a fixed address. */
export function fixedCopy(source: Uint8Array): Uint8Array {
  const copy = fixedBytes(source.length);
  copy.set(source);
  return copy;
}

function hint(errno: string): string {
  if (errno === "EPERM")
    return ": the process needs CAP_BPF and CAP_NET_ADMIN, and the container's seccomp profile must allow bpf";
  if (errno === "ENOSYS") return ": this kernel was built without the system call bpf";
  return "";
}
