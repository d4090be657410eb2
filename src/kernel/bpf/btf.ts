/**
 * The types of the running kernel (BTF), as far as needed: the numbers of its functions (reference ebpf-programs.md §4.7). Five
 * megabytes are read once, in one pass without an object for each of 130,000 types, and given back.
 */
import { existsSync, readFileSync } from "node:fs";
import { messageOf } from "../../logging/message-of.ts";
import { KERNEL_FUNCTION_NAMES, type KernelFunctionName } from "./asm/kernel-functions.ts";
import { BpfError } from "./bpf-error.ts";

/** Of the kernel itself. What lies in modules is in files beside it. */
const KERNEL_TYPES = "/sys/kernel/btf/vmlinux";
const MAGIC = 0xeb9f;
const KIND_FUNCTION = 12;

/** Words that follow the three of a record, by its kind, and words that follow for each of its parts. */
const FIXED_WORDS = Uint8Array.of(0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0);
const WORDS_OF_PART = Uint8Array.of(0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3);
const RECORD_WORDS = 3;

let known: ReadonlyMap<KernelFunctionName, number> | undefined;

/** Those of {@link KERNEL_FUNCTION_NAMES} that the kernel has. @throws BpfError when it does not tell its types. */
export function kernelFunctionIds(): ReadonlyMap<KernelFunctionName, number> {
  known ??= functionIds(readTypes(), KERNEL_FUNCTION_NAMES);
  return known;
}

/** Why a function is not among {@link kernelFunctionIds}, in words. */
export function absenceOf(name: KernelFunctionName, moduleTypes = "/sys/kernel/btf"): string {
  const module = MODULES.find((one) => existsSync(`${moduleTypes}/${one}`));
  if (module === undefined) return `this kernel has no ${name} (${KERNEL_TYPES})`;
  return `${name} is in the module ${module}: programs call it only where it is built into the kernel`;
}

/** Of conntrack, where they are not built in. */
const MODULES = ["nf_conntrack", "nf_nat"];

function readTypes(): Buffer {
  try {
    return readFileSync(KERNEL_TYPES);
  } catch (error) {
    const why = messageOf(error);
    throw new BpfError("unsupported", `bpf: the kernel does not tell its types (CONFIG_DEBUG_INFO_BTF): ${why}`);
  }
}

/**
 * The numbers of functions by name, for those that are there. Pure.
 *
 * @param types a whole BTF, not one that goes on from another. @throws BpfError for anything else.
 */
export function functionIds<Name extends string>(types: Buffer, names: readonly Name[]): ReadonlyMap<Name, number> {
  if (types.length < 24 || types.readUInt16LE(0) !== MAGIC) throw new BpfError("unsupported", "bpf: not a BTF");
  const header = types.readUInt32LE(4);
  const start = header + types.readUInt32LE(8);
  const end = start + types.readUInt32LE(12);
  const strings = types.subarray(header + types.readUInt32LE(16)).subarray(0, types.readUInt32LE(20));
  if (end > types.length) throw new BpfError("unsupported", "bpf: a BTF that ends too early");
  const wanted = new Map<number, Name>();
  for (const name of names) {
    const at = strings.indexOf(`\0${name}\0`);
    if (at >= 0) wanted.set(at + 1, name);
  }
  // The kernel's numbers are those of this machine, and so are those of an array of words.
  const words = new Uint32Array(types.buffer.slice(types.byteOffset + start, types.byteOffset + end));
  const found = new Map<Name, number>();
  for (let at = 0, id = 1; at < words.length && found.size < wanted.size; id++) {
    const info = words[at + 1] ?? 0;
    const kind = (info >>> 24) & 0x1f;
    if (kind === KIND_FUNCTION) {
      const name = wanted.get(words[at] ?? 0);
      if (name !== undefined) found.set(name, id);
    }
    at += RECORD_WORDS + (FIXED_WORDS[kind] ?? 0) + (WORDS_OF_PART[kind] ?? 0) * (info & 0xffff);
  }
  return found;
}
