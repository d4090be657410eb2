/** Types in the kernel's format (BTF), made for tests. */
import type { FunctionTypes } from "../btf.ts";

export interface TypeRecord {
  readonly kind: number;
  readonly name?: string;
  /** Parts, and words after the record. */
  readonly parts?: number;
  readonly tail?: number;
}

/**
 * A BTF with these types. In one of a kernel one string is the end of another.
 *
 * @param base the kernel's, for that of a module: names that it has are not written again.
 */
export function btf(types: readonly TypeRecord[], base?: Omit<FunctionTypes<string>, "ids">): Buffer {
  const offsets = new Map(Array.from(base?.names ?? [], ([at, name]) => [name, at]));
  let strings = base === undefined ? "\0not_this_call\0" : "";
  const positionOf = (name: string): number => {
    if (name === "") return 0;
    const at = offsets.get(name) ?? (base?.stringBytes ?? 0) + strings.length;
    if (!offsets.has(name)) strings += `${name}\0`;
    offsets.set(name, at);
    return at;
  };
  const words = types.flatMap(({ kind, name = "", parts = 0, tail = 0 }) => [
    positionOf(name),
    (kind << 24) | parts,
    0,
    ...new Array<number>(tail).fill(0xffff_ffff),
  ]);
  const records = Buffer.from(Uint32Array.from(words).buffer);
  const header = Buffer.alloc(24);
  header.writeUInt16LE(0xeb9f, 0);
  header.writeUInt8(1, 2);
  for (const [at, value] of [24, 0, records.length, records.length, strings.length].entries()) {
    header.writeUInt32LE(value, 4 + 4 * at);
  }
  return Buffer.concat([header, records, Buffer.from(strings)]);
}
