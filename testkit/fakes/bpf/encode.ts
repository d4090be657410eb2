/** Small test programs, built from instructions: 8 bytes for each, 16 for a wide immediate (reference ebpf-programs.md §4.1). */
import type { MapDefinition, Program } from "../../../src/kernel/bpf/map-definition.ts";
import { HELPERS, type Instruction, type Operand, REGISTERS, type Register, slotNumbers } from "./instruction.ts";
import * as op from "./opcodes.ts";

/** Bytes of one slot. */
export const SLOT_BYTES = 8;

/**
 * A program of these instructions.
 *
 * @param maps those that `load-map` names. @throws RangeError for an offset, immediate or distance that does not fit into its field.
 */
export function assemble(
  name: string,
  instructions: readonly Instruction[],
  maps: readonly MapDefinition[] = [],
): Program {
  const slots = slotNumbers(instructions);
  const writer = new SlotWriter((slots.at(-1) ?? 0) * SLOT_BYTES);
  const references: Program["references"][number][] = [];
  instructions.forEach((instruction, index) => {
    const slot = slots[index] ?? 0;
    const distance = (target: number): number => {
      const to = slots[target];
      if (to === undefined || target >= instructions.length)
        throw new RangeError(`a jump to ${target} leaves the program`);
      return to - slot - 1;
    };
    encodeOne(writer, instruction, distance);
    if (instruction.kind !== "load-map") return;
    const map = maps.find((one) => one.name === instruction.map);
    if (map === undefined) throw new RangeError(`there is no map ${instruction.map}`);
    references.push({ at: slot * SLOT_BYTES, map });
  });
  return { name, code: writer.bytes, references };
}

/** A program that does nothing. @param result 0 rejects, where a hook can. */
export const passing = (name = "passing", result: 0 | 1 = 1): Program =>
  assemble(name, [{ kind: "alu", operation: "mov", bits: 64, destination: "r0", source: result }, { kind: "exit" }]);

function encodeOne(writer: SlotWriter, one: Instruction, distance: (target: number) => number): SlotWriter {
  switch (one.kind) {
    case "alu": {
      const opcode = op.ALU_CODES[one.operation] | (one.bits === 64 ? op.CLASS.ALU64 : op.CLASS.ALU);
      return writer.withOperand(opcode, one.destination, one.source, 0);
    }
    case "byte-order": {
      const opcode = op.OP_BYTE_ORDER | op.CLASS.ALU | (one.order === "be" ? op.SOURCE_REGISTER : 0);
      return writer.slot(opcode, one.destination, "r0", 0, one.bits);
    }
    case "load":
      return writer.slot(
        op.MODE_MEMORY | op.WIDTH_CODES[one.width] | op.CLASS.LDX,
        one.destination,
        one.base,
        one.offset,
        0,
      );
    case "store": {
      const opcode = op.MODE_MEMORY | op.WIDTH_CODES[one.width];
      if (typeof one.source === "number")
        return writer.slot(opcode | op.CLASS.ST, one.base, "r0", one.offset, one.source);
      return writer.slot(opcode | op.CLASS.STX, one.base, one.source, one.offset, 0);
    }
    case "atomic-add":
      return writer.slot(op.ATOMIC_WIDE, one.base, one.source, one.offset, 0);
    case "load-wide": {
      const value = BigInt.asUintN(64, one.value);
      writer.slot(op.LOAD_WIDE, one.destination, "r0", 0, Number(BigInt.asIntN(32, value)));
      return writer.slot(0, "r0", "r0", 0, Number(BigInt.asIntN(32, value >> 32n)));
    }
    case "load-map":
      writer.slot(op.LOAD_WIDE, one.destination, "r0", 0, 0);
      return writer.slot(0, "r0", "r0", 0, 0);
    case "jump":
      return writer.slot(op.OP_JUMP | op.CLASS.JMP, "r0", "r0", distance(one.target), 0);
    case "jump-if": {
      const opcode = op.JUMP_CODES[one.comparison] | (one.bits === 64 ? op.CLASS.JMP : op.CLASS.JMP32);
      return writer.withOperand(opcode, one.left, one.right, distance(one.target));
    }
    case "call":
      return writer.slot(op.OP_CALL | op.CLASS.JMP, "r0", "r0", 0, HELPERS[one.helper]);
    case "exit":
      return writer.slot(op.OP_EXIT | op.CLASS.JMP, "r0", "r0", 0, 0);
  }
}

class SlotWriter {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(size: number) {
    this.bytes = new Uint8Array(size);
    this.#view = new DataView(this.bytes.buffer);
  }

  withOperand(opcode: number, destination: Register, source: Operand, offset: number): this {
    if (typeof source === "number") return this.slot(opcode, destination, "r0", offset, source);
    return this.slot(opcode | op.SOURCE_REGISTER, destination, source, offset, 0);
  }

  slot(opcode: number, destination: Register, source: Register, offset: number, immediate: number): this {
    assertFits(offset, 16, "an offset");
    assertFits(immediate, 32, "an immediate");
    this.#view.setUint8(this.#at, opcode);
    this.#view.setUint8(this.#at + 1, (REGISTERS.indexOf(source) << 4) | REGISTERS.indexOf(destination));
    this.#view.setInt16(this.#at + 2, offset, true);
    this.#view.setInt32(this.#at + 4, immediate, true);
    this.#at += SLOT_BYTES;
    return this;
  }
}

function assertFits(value: number, bits: number, what: string): void {
  const limit = 2 ** (bits - 1);
  if (!Number.isInteger(value) || value < -limit || value >= limit) {
    throw new RangeError(`${what} has ${bits} bits with a sign, and cannot hold ${value}`);
  }
}
