/** Instructions as text, in the notation of the kernel's verifier log and of bpftool. */
import { encodeProgram, SLOT_BYTES } from "./encode.ts";
import { HELPERS } from "./helpers.ts";
import {
  type AluOperation,
  type Bits,
  type Instruction,
  type Operand,
  type Register,
  slotNumbers,
} from "./instruction.ts";

const ALU_SYMBOLS: Readonly<Record<AluOperation, string>> = {
  add: "+=",
  sub: "-=",
  mul: "*=",
  div: "/=",
  or: "|=",
  and: "&=",
  lsh: "<<=",
  rsh: ">>=",
  mod: "%=",
  xor: "^=",
  mov: "=",
  arsh: "s>>=",
};

/**
 * One line for each instruction: `12: (61) r1 = *(u32 *)(r6 +24)`. The first number counts slots, as the kernel does. Pure.
 * Maps appear by name.
 */
export function disassemble(instructions: readonly Instruction[]): readonly string[] {
  const slots = slotNumbers(instructions);
  const program = encodeProgram(instructions);
  return instructions.map((instruction, index) => {
    const slot = slots[index] ?? 0;
    const opcode = (program[slot * SLOT_BYTES] ?? 0).toString(16).padStart(2, "0");
    const distance = (target: number): string => {
      const slotsAway = (slots[target] ?? 0) - slot - 1;
      return `goto pc${slotsAway < 0 ? "" : "+"}${slotsAway}`;
    };
    return `${slot}: (${opcode}) ${text(instruction, distance)}`;
  });
}

function text(one: Instruction, distance: (target: number) => string): string {
  switch (one.kind) {
    case "alu":
      return `${named(one.destination, one.bits)} ${ALU_SYMBOLS[one.operation]} ${operand(one.source, one.bits)}`;
    case "byte-order":
      return `${one.destination} = ${one.order}${one.bits} ${one.destination}`;
    case "load":
      return `${one.destination} = ${memory(one)}`;
    case "store":
      return `${memory(one)} = ${one.source}`;
    case "load-wide":
      return `${one.destination} = 0x${BigInt.asUintN(64, one.value).toString(16)}`;
    case "load-map":
      return `${one.destination} = map[${one.map}]`;
    case "jump":
      return distance(one.target);
    case "jump-if": {
      const right = typeof one.right === "number" ? `0x${(one.right >>> 0).toString(16)}` : named(one.right, one.bits);
      return `if ${named(one.left, one.bits)} ${one.comparison} ${right} ${distance(one.target)}`;
    }
    case "call":
      return `call bpf_${one.helper}#${HELPERS[one.helper].id}`;
    case "exit":
      return "exit";
  }
}

/** The lower half of a register has a name of its own. */
const named = (register: Register, bits: Bits): string => (bits === 64 ? register : `w${register.slice(1)}`);

const operand = (value: Operand, bits: Bits): string => (typeof value === "number" ? `${value}` : named(value, bits));

function memory(access: { readonly width: number; readonly base: Register; readonly offset: number }): string {
  const offset = `${access.offset < 0 ? "" : "+"}${access.offset}`;
  return `*(u${access.width * 8} *)(${access.base} ${offset})`;
}
