/** The inverse of `disassemble.ts`, written from the notation alone: a second opinion about every opcode. */
import { HELPERS, type HelperName } from "../helpers.ts";
import type { AluOperation, Comparison, Instruction, Operand, Register } from "../instruction.ts";

const OPERATIONS: ReadonlyMap<string, AluOperation> = new Map([
  ["+=", "add"],
  ["-=", "sub"],
  ["*=", "mul"],
  ["/=", "div"],
  ["|=", "or"],
  ["&=", "and"],
  ["<<=", "lsh"],
  [">>=", "rsh"],
  ["%=", "mod"],
  ["^=", "xor"],
  ["=", "mov"],
  ["s>>=", "arsh"],
]);
const WIDTHS = new Map([
  ["8", 1],
  ["16", 2],
  ["32", 4],
  ["64", 8],
] as const);

/** @throws Error for a line that is not in the notation. */
export function parseDisassembly(lines: readonly string[]): readonly Instruction[] {
  const parts = lines.map((line) => {
    const found = /^(\d+): \([0-9a-f]{2}\) (.*)$/.exec(line);
    if (found === null) throw new Error(`not an instruction: ${line}`);
    return { slot: Number(found[1]), text: found[2] ?? "" };
  });
  const indexOf = new Map(parts.map(({ slot }, index) => [slot, index]));
  return parts.map(({ slot, text }) => {
    const target = (distance: string): number => {
      const index = indexOf.get(slot + 1 + Number(distance));
      if (index === undefined) throw new Error(`${slot}: no instruction to jump to`);
      return index;
    };
    return parseOne(text, target);
  });
}

const register = (text: string): Register => `r${text.slice(1)}` as Register; // callers matched it

function operand(text: string): Operand {
  if (/^[rw]\d/.test(text)) return register(text);
  return text.startsWith("0x") ? Number(text) | 0 : Number(text);
}

function parseOne(text: string, target: (distance: string) => number): Instruction {
  const match = (pattern: RegExp): readonly string[] | undefined => pattern.exec(text)?.slice(1);
  const place = (width: string, base: string, offset: string) => {
    const bytes = WIDTHS.get(width as "8" | "16" | "32" | "64");
    if (bytes === undefined) throw new Error(`no width: ${text}`);
    return { width: bytes, base: register(base), offset: Number(offset) };
  };
  let found = match(/^exit$/);
  if (found !== undefined) return { kind: "exit" };
  found = match(/^call bpf_(\w+)#(\d+)$/);
  if (found !== undefined) {
    const helper = found[0] as HelperName;
    if (HELPERS[helper].id !== Number(found[1])) throw new Error(`another number of ${helper}`);
    return { kind: "call", helper };
  }
  found = match(/^goto pc([+-]\d+)$/);
  if (found !== undefined) return { kind: "jump", target: target(found[0] ?? "") };
  found = match(/^if ([rw])(\d+) (\S+) (\S+) goto pc([+-]\d+)$/);
  if (found !== undefined) {
    const [half, number, comparison, right = "", distance = ""] = found;
    return {
      kind: "jump-if",
      comparison: comparison as Comparison,
      bits: half === "r" ? 64 : 32,
      left: register(`r${number}`),
      right: operand(right),
      target: target(distance),
    };
  }
  found = match(/^\*\(u(\d+) \*\)\((r\d+) ([+-]\d+)\) = (\S+)$/);
  if (found !== undefined) {
    const [width = "", base = "", offset = "", source = ""] = found;
    return { kind: "store", ...place(width, base, offset), source: operand(source) };
  }
  found = match(/^(r\d+) = \*\(u(\d+) \*\)\((r\d+) ([+-]\d+)\)$/);
  if (found !== undefined) {
    const [destination = "", width = "", base = "", offset = ""] = found;
    return { kind: "load", ...place(width, base, offset), destination: register(destination) };
  }
  found = match(/^(r\d+) = map\[(\S+)\]$/);
  if (found !== undefined) return { kind: "load-map", destination: register(found[0] ?? ""), map: found[1] ?? "" };
  found = match(/^(r\d+) = (0x[0-9a-f]+)$/);
  if (found !== undefined)
    return { kind: "load-wide", destination: register(found[0] ?? ""), value: BigInt(found[1] ?? "") };
  found = match(/^(r\d+) = ([bl]e)(16|32|64) \1$/);
  if (found !== undefined) {
    const order = found[1] === "be" ? "be" : "le";
    return { kind: "byte-order", order, bits: Number(found[2]) as 16 | 32 | 64, destination: register(found[0] ?? "") };
  }
  found = match(/^([rw])(\d+) (\S+) ([rw]\d+|-?\d+)$/);
  const operation = OPERATIONS.get(found?.[2] ?? "");
  if (found === undefined || operation === undefined) throw new Error(`not an instruction: ${text}`);
  return {
    kind: "alu",
    operation,
    bits: found[0] === "r" ? 64 : 32,
    destination: register(`r${found[1]}`),
    source: operand(found[3] ?? ""),
  };
}
