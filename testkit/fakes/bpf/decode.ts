/** Bytes to instructions, for the instructions that our own programs use. */
import type { Width } from "../../../src/kernel/bpf/layout.ts";
import type { Program } from "../../../src/kernel/bpf/map-definition.ts";
import { SLOT_BYTES } from "./encode.ts";
import { HELPERS, type HelperName, type Instruction, REGISTERS, type Register } from "./instruction.ts";
import * as op from "./opcodes.ts";

function reversed<Name extends string>(codes: Readonly<Record<Name, number>>): ReadonlyMap<number, Name> {
  const names = Object.keys(codes) as Name[]; // exactly the keys of its own table
  return new Map(names.map((name) => [codes[name], name]));
}

const ALU_NAMES = reversed(op.ALU_CODES);
const JUMP_NAMES = reversed(op.JUMP_CODES);
const WIDTHS: ReadonlyMap<number, Width> = new Map([
  [0x00, 4],
  [0x08, 2],
  [0x10, 1],
  [0x18, 8],
]);

/** The fields of one slot. */
interface Slot {
  readonly opcode: number;
  readonly destination: Register;
  readonly source: Register;
  readonly offset: number;
  readonly immediate: number;
}

/** @throws Error, with the slot's number, for an unknown instruction. */
export function decodeProgram({ code, references }: Program): readonly Instruction[] {
  if (code.length % SLOT_BYTES !== 0) throw new Error(`a program has ${SLOT_BYTES} bytes for each slot`);
  const maps = new Map(references.map(({ at, map }) => [at / SLOT_BYTES, map.name]));
  const starts: number[] = [];
  const indexOfSlot = new Map<number, number>();
  for (let slot = 0; slot < code.length / SLOT_BYTES; slot += readSlot(code, slot).opcode === op.LOAD_WIDE ? 2 : 1) {
    indexOfSlot.set(slot, starts.length);
    starts.push(slot);
  }
  return starts.map((slot) => {
    const target = (distance: number): number => {
      const index = indexOfSlot.get(slot + 1 + distance);
      if (index === undefined) throw new Error(`slot ${slot}: a jump into nothing`);
      return index;
    };
    return decodeOne(code, slot, target, maps.get(slot));
  });
}

function readSlot(program: Uint8Array, slot: number): Slot {
  const view = new DataView(program.buffer, program.byteOffset + slot * SLOT_BYTES, SLOT_BYTES);
  const registers = view.getUint8(1);
  const register = (number: number): Register => {
    const name = REGISTERS[number];
    if (name === undefined) throw new Error(`slot ${slot}: there is no register ${number}`);
    return name;
  };
  return {
    opcode: view.getUint8(0),
    destination: register(registers & 0xf),
    source: register(registers >> 4),
    offset: view.getInt16(2, true),
    immediate: view.getInt32(4, true),
  };
}

function decodeOne(
  program: Uint8Array,
  slot: number,
  target: (distance: number) => number,
  map: string | undefined,
): Instruction {
  const it = readSlot(program, slot);
  const { destination, offset } = it;
  const operand = (it.opcode & op.SOURCE_REGISTER) !== 0 ? it.source : it.immediate;
  const width = WIDTHS.get(it.opcode & 0x18) ?? 4;
  switch (it.opcode & 7) {
    case op.CLASS.ALU:
    case op.CLASS.ALU64: {
      const bits = (it.opcode & 7) === op.CLASS.ALU64 ? 64 : 32;
      const code = it.opcode & 0xf0;
      if (code === op.OP_BYTE_ORDER && bits === 32) return byteOrder(it, slot);
      const operation = ALU_NAMES.get(code);
      if (operation !== undefined) return { kind: "alu", operation, bits, destination, source: operand };
      break;
    }
    case op.CLASS.LDX:
      if ((it.opcode & 0xe0) === op.MODE_MEMORY) return { kind: "load", width, destination, base: it.source, offset };
      break;
    case op.CLASS.ST:
    case op.CLASS.STX: {
      if (it.opcode === op.ATOMIC_WIDE && it.immediate === 0) {
        return { kind: "atomic-add", base: destination, offset, source: it.source };
      }
      const isStx = (it.opcode & 7) === op.CLASS.STX;
      const source = isStx ? it.source : it.immediate;
      if ((it.opcode & 0xe0) === op.MODE_MEMORY) return { kind: "store", width, base: destination, offset, source };
      break;
    }
    case op.CLASS.JMP:
    case op.CLASS.JMP32: {
      const bits = (it.opcode & 7) === op.CLASS.JMP ? 64 : 32;
      const code = it.opcode & 0xf0;
      const comparison = JUMP_NAMES.get(code);
      if (comparison !== undefined) {
        return { kind: "jump-if", comparison, bits, left: destination, right: operand, target: target(offset) };
      }
      if (bits === 32) break;
      if (code === op.OP_JUMP) return { kind: "jump", target: target(offset) };
      if (code === op.OP_EXIT) return { kind: "exit" };
      const helper = NAMES.get(it.immediate);
      if (code === op.OP_CALL && it.source === "r0" && helper !== undefined) return { kind: "call", helper };
      break;
    }
    case op.CLASS.LD: {
      if (it.opcode !== op.LOAD_WIDE) break;
      if (map !== undefined) return { kind: "load-map", destination, map };
      const high = BigInt(readSlot(program, slot + 1).immediate);
      const value = (BigInt.asUintN(32, high) << 32n) | BigInt.asUintN(32, BigInt(it.immediate));
      if (it.source === "r0") return { kind: "load-wide", destination, value };
      break;
    }
  }
  throw new Error(`slot ${slot}: opcode 0x${it.opcode.toString(16)} is not known`);
}

function byteOrder(it: Slot, slot: number): Instruction {
  const bits = it.immediate;
  if (bits !== 16 && bits !== 32 && bits !== 64) throw new Error(`slot ${slot}: no byte order of ${bits} bits`);
  const order = (it.opcode & op.SOURCE_REGISTER) !== 0 ? "be" : "le";
  return { kind: "byte-order", order, bits, destination: it.destination };
}

const NAMES = new Map<number, HelperName>(
  Object.keys(HELPERS).map((name) => [HELPERS[name as HelperName], name as HelperName]),
);
