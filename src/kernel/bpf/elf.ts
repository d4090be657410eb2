/**
 * Reads programs from an object file that clang compiled for the target `bpf`. Each section with code is one program. The code refers to
 * undefined symbols, whose values are given here: maps, or constants, so that the verifier drops the code that a constant excludes.
 */
import { BpfError } from "./bpf-error.ts";
import type { MapDefinition, Program } from "./map-definition.ts";

/** The value of an undefined symbol. */
type Given = MapDefinition | bigint;

const MAGIC = 0x464c457f;
/** 64 bits, little-endian. */
const CLASS_AND_ORDER = 0x0201;
const MACHINE_BPF = 247;
const SECTION_BYTES = 64;
const SYMBOL_BYTES = 24;
const RELOCATION_BYTES = 16;
const [SYMBOLS, RELOCATIONS, CODE] = [2, 9, 1];
const EXECUTABLE = 4;
/** R_BPF_64_64: an instruction with a 64-bit immediate, in two slots. */
const WIDE_IMMEDIATE = 1;

interface Section {
  readonly name: string;
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly size: number;
  /** For relocations: the section that they change. */
  readonly target: number;
}

/** @param given by symbol. @returns by name. @throws BpfError `invalid` if this is no such file or a symbol is not given. */
export function readPrograms(file: Uint8Array, given: ReadonlyMap<string, Given>): ReadonlyMap<string, Program> {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const sections = readSections(file, view);
  const symbolsAt = sections.find(({ type }) => type === SYMBOLS)?.offset ?? 0;
  const names = sections.find(({ name }) => name === ".strtab")?.offset ?? 0;
  const symbolNamed = (index: number): string =>
    textAt(file, names + view.getUint32(symbolsAt + index * SYMBOL_BYTES, true));
  const programs = new Map<string, Program>();
  for (const [index, { name, type, flags, offset, size }] of sections.entries()) {
    if (type !== CODE || (flags & EXECUTABLE) === 0 || size === 0) continue;
    const code = file.slice(offset, offset + size);
    const references: { at: number; map: MapDefinition }[] = [];
    const relocations = sections.find((one) => one.type === RELOCATIONS && one.target === index);
    for (let read = 0; read < (relocations?.size ?? 0); read += RELOCATION_BYTES) {
      const entry = (relocations?.offset ?? 0) + read;
      const at = Number(view.getBigUint64(entry, true));
      const symbol = symbolNamed(view.getUint32(entry + 12, true));
      const what = given.get(symbol);
      if (what === undefined || view.getUint32(entry + 8, true) !== WIDE_IMMEDIATE) {
        throw new BpfError("invalid", `bpf: program ${name}: symbol ${symbol} is undefined`);
      }
      if (typeof what === "bigint") putWide(code, at, what);
      else references.push({ at, map: what });
    }
    programs.set(name, { name, code, references });
  }
  return programs;
}

function readSections(file: Uint8Array, view: DataView): readonly Section[] {
  const isObject =
    file.length > SECTION_BYTES &&
    view.getUint32(0, true) === MAGIC &&
    view.getUint16(4) === CLASS_AND_ORDER &&
    view.getUint16(18, true) === MACHINE_BPF;
  if (!isObject) throw new BpfError("invalid", "bpf: this is not an object file with programs");
  const table = Number(view.getBigUint64(40, true));
  const [count, namesIndex] = [view.getUint16(60, true), view.getUint16(62, true)];
  const offsetOf = (index: number): number => Number(view.getBigUint64(table + index * SECTION_BYTES + 24, true));
  return Array.from({ length: count }, (_, index) => {
    const at = table + index * SECTION_BYTES;
    return {
      name: textAt(file, offsetOf(namesIndex) + view.getUint32(at, true)),
      type: view.getUint32(at + 4, true),
      flags: Number(view.getBigUint64(at + 8, true)),
      offset: offsetOf(index),
      size: Number(view.getBigUint64(at + 32, true)),
      target: view.getUint32(at + 44, true),
    };
  });
}

function textAt(file: Uint8Array, at: number): string {
  return Buffer.from(file.subarray(at, file.indexOf(0, at))).toString("latin1");
}

/** The immediate's two halves are in two slots. */
function putWide(code: Uint8Array, at: number, value: bigint): void {
  const view = new DataView(code.buffer, code.byteOffset, code.byteLength);
  view.setUint32(at + 4, Number(BigInt.asUintN(32, value)), true);
  view.setUint32(at + 12, Number(BigInt.asUintN(32, value >> 32n)), true);
}
