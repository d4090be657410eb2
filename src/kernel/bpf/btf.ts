/**
 * Types of the running kernel (BTF), as far as needed: the numbers of its functions (reference ebpf-programs.md §4.7). Five megabytes
 * are read in one pass, without an object for each of 130,000 types.
 */
import { BpfError } from "./bpf-error.ts";

const MAGIC = 0xeb9f;
const HEADER_BYTES = 24;
const KIND_FUNCTION = 12;

/** Words that follow the three of a record, by its kind, and words that follow for each of its parts. */
const FIXED_WORDS = Uint8Array.of(0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0);
const WORDS_OF_PART = Uint8Array.of(0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3);
const RECORD_WORDS = 3;

/** What is wanted of one BTF, and what another that goes on from it has to know. */
export interface FunctionTypes<Name extends string> {
  /** Numbers of the functions that it has, by name. */
  readonly ids: ReadonlyMap<Name, number>;
  /** The first number that is free. */
  readonly nextId: number;
  readonly stringBytes: number;
  /** The names among its strings, by where they begin; of functions or of anything else. */
  readonly names: ReadonlyMap<number, Name>;
}

/** Before the kernel's own: number 0 is no type. */
const NOTHING = { nextId: 1, stringBytes: 0, names: new Map<number, never>() };

/**
 * The numbers of functions by name, for those that are there. Pure.
 *
 * @param types a whole BTF. @param base for that of a module: the kernel's, whose numbers and strings it continues.
 * @throws BpfError for anything else.
 */
export function functionTypes<Name extends string>(
  types: Buffer,
  wanted: readonly Name[],
  base: Omit<FunctionTypes<Name>, "ids"> = NOTHING,
): FunctionTypes<Name> {
  if (types.length < HEADER_BYTES || types.readUInt16LE(0) !== MAGIC)
    throw new BpfError("unsupported", "bpf: not a BTF");
  const header = types.readUInt32LE(4);
  const start = header + types.readUInt32LE(8);
  const end = start + types.readUInt32LE(12);
  const strings = types.subarray(header + types.readUInt32LE(16)).subarray(0, types.readUInt32LE(20));
  if (end > types.length) throw new BpfError("unsupported", "bpf: a BTF that ends too early");
  const names = new Map(base.names);
  for (const name of wanted) {
    const at = positionOf(strings, name);
    if (at >= 0) names.set(base.stringBytes + at, name);
  }
  // The kernel's numbers are those of this machine, and so are those of an array of words.
  const words = new Uint32Array(types.buffer.slice(types.byteOffset + start, types.byteOffset + end));
  const ids = new Map<Name, number>();
  let nextId = base.nextId;
  for (let at = 0; at < words.length; nextId++) {
    const info = words[at + 1] ?? 0;
    const kind = (info >>> 24) & 0x1f;
    if (kind === KIND_FUNCTION) {
      const name = names.get(words[at] ?? 0);
      if (name !== undefined) ids.set(name, nextId);
    }
    at += RECORD_WORDS + (FIXED_WORDS[kind] ?? 0) + (WORDS_OF_PART[kind] ?? 0) * (info & 0xffff);
  }
  return { ids, nextId, stringBytes: base.stringBytes + strings.length, names };
}

/** Of a whole string. The first one of a module begins at 0, where the kernel has an empty one. */
function positionOf(strings: Buffer, name: string): number {
  if (strings.subarray(0, name.length + 1).equals(Buffer.from(`${name}\0`))) return 0;
  const before = strings.indexOf(`\0${name}\0`);
  return before < 0 ? -1 : before + 1;
}
