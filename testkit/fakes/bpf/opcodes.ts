/** Numbers of the instruction set (reference ebpf-programs.md §4.1). */
import type { Width } from "../../../src/kernel/bpf/layout.ts";
import type { AluOperation, Comparison } from "./instruction.ts";

/** The low three bits of an opcode. */
export const CLASS = { LD: 0, LDX: 1, ST: 2, STX: 3, ALU: 4, JMP: 5, JMP32: 6, ALU64: 7 } as const;
/** The second operand is a register. */
export const SOURCE_REGISTER = 0x08;
export const MODE_MEMORY = 0x60;
/** 64 bits wide; the immediate is the operation, and 0 adds. */
export const ATOMIC_WIDE = 0xdb;
export const OP_BYTE_ORDER = 0xd0;
export const OP_JUMP = 0x00;
export const OP_CALL = 0x80;
export const OP_EXIT = 0x90;
/** A 64-bit immediate; takes two slots. */
export const LOAD_WIDE = 0x18;

export const ALU_CODES: Readonly<Record<AluOperation, number>> = {
  add: 0x00,
  sub: 0x10,
  mul: 0x20,
  div: 0x30,
  or: 0x40,
  and: 0x50,
  lsh: 0x60,
  rsh: 0x70,
  mod: 0x90,
  xor: 0xa0,
  mov: 0xb0,
  arsh: 0xc0,
};

export const JUMP_CODES: Readonly<Record<Comparison, number>> = {
  "==": 0x10,
  ">": 0x20,
  ">=": 0x30,
  "&": 0x40,
  "!=": 0x50,
  "s>": 0x60,
  "s>=": 0x70,
  "<": 0xa0,
  "<=": 0xb0,
  "s<": 0xc0,
  "s<=": 0xd0,
};

export const WIDTH_CODES: Readonly<Record<Width, number>> = { 4: 0x00, 2: 0x08, 1: 0x10, 8: 0x18 };
