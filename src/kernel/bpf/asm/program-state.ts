/**
 * What is known at one point of a program: what each register holds, and which bytes of the stack were written on every way that
 * leads here. Most of what the verifier would refuse is found with it while the program is assembled (reference ebpf-programs.md
 * §4.4).
 */
import type { MapDefinition } from "../map-definition.ts";
import { REGISTERS, type Register } from "./instruction.ts";

export const STACK_BYTES = 512;

export type Held =
  /** Nothing yet, or something else on another way that leads here. */
  | { readonly kind: "unset" }
  | { readonly kind: "scalar" }
  | { readonly kind: "context" }
  /** An address in the stack; `offset` from the frame pointer is negative. */
  | { readonly kind: "stack"; readonly offset: number }
  | { readonly kind: "map"; readonly map: MapDefinition }
  /** An address in a map's value. */
  | { readonly kind: "value"; readonly map: MapDefinition; readonly offset: number }
  /** What a look-up gave. Copies of it have the same number, and are checked together. */
  | { readonly kind: "value-or-null"; readonly map: MapDefinition; readonly lookup: number };

export const SCALAR: Held = { kind: "scalar" };
export const UNSET: Held = { kind: "unset" };

export class ProgramState {
  readonly #registers: Map<Register, Held>;
  /** Bit n: the byte at n − 512 was written. */
  #written: bigint;

  private constructor(registers: ReadonlyMap<Register, Held>, written: bigint) {
    this.#registers = new Map(registers);
    this.#written = written;
  }

  /** A program begins with the context in r1, the frame pointer in r10, and nothing else. */
  static atEntry(): ProgramState {
    const registers = new Map<Register, Held>([
      ["r1", { kind: "context" }],
      ["r10", { kind: "stack", offset: 0 }],
    ]);
    return new ProgramState(registers, 0n);
  }

  copy(): ProgramState {
    return new ProgramState(this.#registers, this.#written);
  }

  /** What is known whichever of two ways was taken. */
  join(other: ProgramState): ProgramState {
    const registers = new Map<Register, Held>();
    for (const register of REGISTERS) {
      const [one, two] = [this.held(register), other.held(register)];
      if (isSame(one, two)) registers.set(register, one);
    }
    return new ProgramState(registers, this.#written & other.#written);
  }

  held(register: Register): Held {
    return this.#registers.get(register) ?? UNSET;
  }

  hold(register: Register, what: Held): void {
    this.#registers.set(register, what);
  }

  /** After a comparison with 0: all copies of a look-up's result are values, or they are the number 0. */
  settleLookup(lookup: number, isNull: boolean): void {
    for (const [register, held] of this.#registers) {
      if (!("lookup" in held) || held.lookup !== lookup) continue;
      this.#registers.set(register, isNull ? SCALAR : { kind: "value", map: held.map, offset: 0 });
    }
  }

  markWritten(offset: number, size: number): void {
    this.#written |= mask(offset, size);
  }

  isWritten(offset: number, size: number): boolean {
    const bytes = mask(offset, size);
    return (this.#written & bytes) === bytes;
  }
}

const mask = (offset: number, size: number): bigint => ((1n << BigInt(size)) - 1n) << BigInt(offset + STACK_BYTES);

function isSame(one: Held, two: Held): boolean {
  if (one.kind !== two.kind) return false;
  if ("map" in one && "map" in two && one.map !== two.map) return false;
  if ("offset" in one && "offset" in two && one.offset !== two.offset) return false;
  return !("lookup" in one && "lookup" in two) || one.lookup === two.lookup;
}

/** For messages: `a pointer into services, which may be null`. */
export function describeHeld(held: Held): string {
  switch (held.kind) {
    case "unset":
      return "nothing on at least one way that leads here";
    case "scalar":
      return "a number";
    case "context":
      return "the context";
    case "stack":
      return `the address of the stack at ${held.offset}`;
    case "map":
      return `the map ${held.map.name}`;
    case "value":
      return `a pointer into a value of ${held.map.name}`;
    case "value-or-null":
      return `a pointer into a value of ${held.map.name}, or null`;
  }
}
