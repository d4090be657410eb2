/**
 * Debian's user-mode Linux with batched page faults. A process inside is a host process under ptrace: each of its page faults is three
 * round trips between two processes, 0.12 ms, which was three quarters of a test's time: a start of Node.js has 5,400 of them.
 *
 * The kernel itself prepares up to sixteen pages of a file at each fault (`do_fault_around`). But that of 6.1 shows only one of them
 * to the host (`flush_tlb_page`, arch/um/kernel/tlb.c), and the others fault all the same. The patched program shows all that are
 * ready around it (`flush_tlb_range`, which the kernel uses for larger changes), and prepares more of them.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";

/** A power of two. With more, programs that use little of large files pay for what they do not use. */
const WINDOW_BYTES = 0x40000;
/** The usual value in all kernels. */
const FAULT_AROUND_BYTES = 0x10000n;

/** `flush_tlb_range`, followed by the beginning of `flush_tlb_page`. Two dots are any byte: of addresses. */
const FLUSH_RANGE =
  "55 48 8b 7f 10 48 89 f0 48 89 e5 48 85 ff 75 14 48 89 c7 48 89 d6 48 b8 .. .. .. .. .. .. .. .. ff d0 eb 0e " +
  "48 b8 .. .. .. .. .. .. .. .. 31 c9 ff d0 5d c3";
const FLUSH_PAGE = "55 48 89 e5 41 56 41 55 41 54 53 48 89 f3 48 c1 ee 1e 81 e6 ff 01 00 00 48 81 e3 00 f0 ff ff";
/** Where `do_fault_around` reads `fault_around_bytes`, through an eight-byte address. */
const READ_WINDOW =
  "41 f6 44 24 21 10 75 d3 48 a1 .. .. .. .. .. .. .. .. 48 8b 55 88 49 8b 0c 24 4c 8b 6d 80 48 89 c6";
const ADDRESS_IN_READ_WINDOW = 10;

const bytesOf = (pattern: string) => pattern.split(" ");
const length = (pattern: string) => bytesOf(pattern).length;

/** Where the pattern begins in the file; undefined unless it occurs exactly once. */
function placeOf(pattern: string, file: Buffer): number | undefined {
  const bytes = bytesOf(pattern).map((byte) => (byte === ".." ? undefined : Number.parseInt(byte, 16)));
  const end = bytes.indexOf(undefined);
  const fixed = Buffer.from(bytes.slice(0, end < 0 ? bytes.length : end).map((byte) => byte ?? 0));
  const places: number[] = [];
  for (let at = file.indexOf(fixed); at >= 0; at = file.indexOf(fixed, at + 1)) {
    if (bytes.every((byte, index) => byte === undefined || file[at + index] === byte)) places.push(at);
  }
  return places.length === 1 ? places[0] : undefined;
}

/** The file offset of the eight bytes at this address in a 64-bit ELF program. */
function placeOfAddress(address: bigint, file: Buffer): number | undefined {
  const headers = Number(file.readBigUInt64LE(32));
  const size = file.readUInt16LE(54);
  for (let index = 0; index < file.readUInt16LE(56); index += 1) {
    const at = headers + index * size;
    const isLoaded = file.readUInt32LE(at) === 1;
    const offset = file.readBigUInt64LE(at + 8);
    const start = file.readBigUInt64LE(at + 16);
    const end = start + file.readBigUInt64LE(at + 32);
    if (isLoaded && address >= start && address + 8n <= end) return Number(offset + address - start);
  }
  return undefined;
}

/** `flush_tlb_page(area, address)` as `flush_tlb_range(area, start, end)` of the window that the address is in. */
function flushWindow(distanceToRange: number): Buffer {
  const code = Buffer.alloc(19);
  // and rsi, -window; lea rdx, [rsi + window]; jmp flush_tlb_range
  code.set([0x48, 0x81, 0xe6]);
  code.writeInt32LE(-WINDOW_BYTES, 3);
  code.set([0x48, 0x8d, 0x96], 7);
  code.writeInt32LE(WINDOW_BYTES, 10);
  code.set([0xe9], 14);
  code.writeInt32LE(distanceToRange - code.length, 15);
  return code;
}

/** The program with batched page faults; undefined if it is not the expected one. */
export function withBatchedFaults(kernel: Buffer): Buffer | undefined {
  const flushRange = placeOf(`${FLUSH_RANGE} ${FLUSH_PAGE}`, kernel);
  const readWindow = placeOf(READ_WINDOW, kernel);
  if (flushRange === undefined || readWindow === undefined) return undefined;
  const window = placeOfAddress(kernel.readBigUInt64LE(readWindow + ADDRESS_IN_READ_WINDOW), kernel);
  if (window === undefined || kernel.readBigUInt64LE(window) !== FAULT_AROUND_BYTES) return undefined;
  const changed = Buffer.from(kernel);
  const rangeLength = length(FLUSH_RANGE);
  changed.set(flushWindow(-rangeLength), flushRange + rangeLength);
  changed.writeBigUInt64LE(BigInt(WINDOW_BYTES), window);
  return changed;
}

/** The path of the patched program, beside the given one; the given one itself if it is not as expected: it is correct, but slow. */
export function batchingKernel(kernel: string): string {
  const path = `${kernel}.${WINDOW_BYTES}`;
  if (existsSync(path)) return path;
  const changed = withBatchedFaults(readFileSync(kernel));
  if (changed === undefined) {
    process.stderr.write(`${kernel} is another version than testkit/vm/uml-kernel.ts knows: page faults are slow\n`);
    return kernel;
  }
  // Another run may do the same.
  writeFileSync(`${path}.${process.pid}`, changed, { mode: 0o755 });
  renameSync(`${path}.${process.pid}`, path);
  return path;
}
