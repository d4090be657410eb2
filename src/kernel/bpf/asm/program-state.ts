/**
 * What is known at one point of a program: what each register holds, and which bytes of the stack were written on every way that
 * leads here. Most of what the verifier would refuse is found with it while the program is assembled (reference ebpf-programs.md
 * §4.4).
 */
import type { MapDefinition } from "../map-definition.ts";
import type { KernelObject } from "./helpers.ts";
import { REGISTERS, type Register } from "./instruction.ts";

export const STACK_BYTES = 512;

export type Held =
  /** Nothing yet, or something else on another way that leads here. */
  | { readonly kind: "unset" }
  /** `value`: where it is the same on every way. */
  | { readonly kind: "scalar"; readonly value?: number }
  | { readonly kind: "context" }
  /** An address in the stack; `offset` from the frame pointer is negative. */
  | { readonly kind: "stack"; readonly offset: number }
  | { readonly kind: "map"; readonly map: MapDefinition }
  /** An address in a map's value. */
  | { readonly kind: "value"; readonly map: MapDefinition; readonly offset: number }
  /** What a look-up gave. Copies of it have the same number, and are checked together. */
  | { readonly kind: "value-or-null"; readonly map: MapDefinition; readonly lookup: number }
  /** A reference to something of the kernel's. The number tells it from others, as that of a look-up does. */
  | { readonly kind: "object" | "object-or-null"; readonly object: KernelObject; readonly lookup: number };

export const SCALAR: Held = { kind: "scalar" };
export const UNSET: Held = { kind: "unset" };

export class ProgramState {
  readonly #registers: Map<Register, Held>;
  /** Bit n: the byte at n − 512 was written. */
  #written: bigint;
  /** References that were taken and not given back, on any way. */
  readonly #references: Set<number>;

  private constructor(registers: ReadonlyMap<Register, Held>, written: bigint, references: Iterable<number> = []) {
    this.#registers = new Map(registers);
    this.#written = written;
    this.#references = new Set(references);
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
    return new ProgramState(this.#registers, this.#written, this.#references);
  }

  /** What is known whichever of two ways was taken. */
  join(other: ProgramState): ProgramState {
    const registers = new Map<Register, Held>();
    for (const register of REGISTERS) {
      const [one, two] = [this.held(register), other.held(register)];
      if (isSame(one, two)) registers.set(register, one);
      else if (one.kind === "scalar" && two.kind === "scalar") registers.set(register, SCALAR);
    }
    return new ProgramState(registers, this.#written & other.#written, [...this.#references, ...other.#references]);
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
      if (isNull) this.#registers.set(register, SCALAR);
      else if (held.kind === "value-or-null")
        this.#registers.set(register, { kind: "value", map: held.map, offset: 0 });
      else this.#registers.set(register, { ...held, kind: "object" });
    }
    if (isNull) this.#references.delete(lookup);
  }

  /** A call has given a reference. */
  take(reference: number): void {
    this.#references.add(reference);
  }

  /** A reference was given back: no copy of it can be used any more. */
  giveBack(reference: number): void {
    this.#references.delete(reference);
    for (const [register, held] of this.#registers) {
      if (held.kind === "object" && held.lookup === reference) this.#registers.set(register, UNSET);
    }
  }

  /** Whether a reference would be lost at the program's end. */
  get holdsReferences(): boolean {
    return this.#references.size > 0;
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
  if (one.kind === "scalar" && two.kind === "scalar") return one.value === two.value;
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
    case "object":
      return `a reference to ${held.object}`;
    case "object-or-null":
      return `a reference to ${held.object}, or null`;
  }
}
