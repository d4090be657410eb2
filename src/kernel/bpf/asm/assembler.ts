/**
 * Assembles one program. Labels stand for places further on; there are no loops. What the verifier would refuse for the way a
 * program is written is an {@link AssemblyError} here: a pointer used before it was compared with null, a register that a call
 * destroyed, a stack byte that is read before it is written, an access outside of a value (reference ebpf-programs.md §4.4, §4.5).
 */
import { getCallSites } from "../../node-util.ts";
import { type ContextRules, mayAccess } from "../contexts.ts";
import type { Field } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";
import { type ArgumentKind, HELPERS, type HelperName } from "./helpers.ts";
import type {
  AluOperation,
  Bits,
  Comparison,
  Instruction,
  Operand,
  Register,
  WritableRegister,
} from "./instruction.ts";
import type { Program } from "./program.ts";
import { describeHeld, type Held, ProgramState, SCALAR, STACK_BYTES, UNSET } from "./program-state.ts";

/** A mistake in a program of ours, with the line that made it. */
export class AssemblyError extends Error {
  override readonly name = "AssemblyError";
}

/** A place that is jumped to. */
export interface Label {
  readonly name: string;
}

/** Bytes of the stack, aligned to 8. */
export interface StackSlot {
  readonly name: string;
  /** From the frame pointer; negative. */
  readonly offset: number;
  readonly size: number;
}

interface LabelState {
  /** What is known at the jumps to it so far. */
  state: ProgramState | undefined;
  index: number | undefined;
  readonly jumps: number[];
}

const ARGUMENTS: readonly WritableRegister[] = ["r1", "r2", "r3", "r4", "r5"];

export class Assembler {
  readonly #name: string;
  readonly #context: ContextRules;
  readonly #instructions: Instruction[] = [];
  readonly #notes: string[] = [];
  readonly #maps = new Map<string, MapDefinition>();
  readonly #labels = new Map<Label, LabelState>();
  /** Undefined after a jump or an exit, until the next label. */
  #state: ProgramState | undefined = ProgramState.atEntry();
  #stackUsed = 0;
  #lookups = 0;

  constructor(name: string, context: ContextRules) {
    this.#name = name;
    this.#context = context;
  }

  /** Room on the stack. */
  slot(name: string, size: number): StackSlot {
    this.#stackUsed += Math.ceil(size / 8) * 8;
    if (this.#stackUsed > STACK_BYTES) throw this.#mistake(`no room for ${name}: the stack has ${STACK_BYTES} bytes`);
    return { name, offset: -this.#stackUsed, size };
  }

  label(name: string): Label {
    const label = { name };
    this.#labels.set(label, { state: undefined, index: undefined, jumps: [] });
    return label;
  }

  /** What follows is where the label leads. */
  place(label: Label): void {
    const it = this.#stateOf(label);
    if (it.index !== undefined) throw this.#mistake(`the label ${label.name} is placed twice`);
    it.index = this.#instructions.length;
    if (it.state === undefined) return;
    this.#state = this.#state === undefined ? it.state : this.#state.join(it.state);
  }

  mov(destination: WritableRegister, source: Operand, bits: Bits = 64): void {
    const held: Held = typeof source === "number" ? SCALAR : this.#read(source);
    if (bits === 32 && held.kind !== "scalar") throw this.#mistake(`half of ${describeHeld(held)} is of no use`);
    this.#emit({ kind: "alu", operation: "mov", bits, destination, source });
    this.#known().hold(destination, held);
  }

  /** Arithmetic. To addresses of the stack and of values, numbers known here may be added. */
  alu(operation: Exclude<AluOperation, "mov">, destination: WritableRegister, source: Operand, bits: Bits = 64): void {
    const held = this.#read(destination);
    if (held.kind === "stack" || held.kind === "value") {
      if (operation !== "add" || bits !== 64 || typeof source !== "number") {
        throw this.#mistake(`to ${describeHeld(held)}, only numbers known here can be added`);
      }
      this.#emit({ kind: "alu", operation, bits, destination, source });
      this.#known().hold(destination, { ...held, offset: held.offset + source });
      return;
    }
    this.#demandScalar(destination);
    if (typeof source !== "number") this.#demandScalar(source);
    this.#emit({ kind: "alu", operation, bits, destination, source });
    this.#known().hold(destination, SCALAR);
  }

  /** Converts between the host's order and that of the network. */
  byteOrder(order: "le" | "be", bits: 16 | 32 | 64, destination: WritableRegister): void {
    this.#demandScalar(destination);
    this.#emit({ kind: "byte-order", order, bits, destination });
    this.#known().hold(destination, SCALAR);
  }

  /** Reads a field; `from` is where its struct begins, counted from the base. The upper bits are 0. */
  load(destination: WritableRegister, base: Register, field: Pick<Field, "at" | "width">, from = 0): void {
    const offset = from + field.at;
    this.#demandAccess(base, offset, field, "reads");
    this.#emit({ kind: "load", width: field.width, destination, base, offset });
    this.#known().hold(destination, SCALAR);
  }

  /** Writes a field. Only numbers: an address that is stored could not be used again. */
  store(base: Register, field: Pick<Field, "at" | "width">, source: Operand, from = 0): void {
    const offset = from + field.at;
    if (typeof source !== "number") this.#demandScalar(source);
    else if (this.#read(base).kind === "context") throw this.#mistake("old kernels write no immediate to the context");
    this.#demandAccess(base, offset, field, "writes");
    this.#emit({ kind: "store", width: field.width, base, offset, source });
    const held = this.#read(base);
    if (held.kind === "stack") this.#known().markWritten(held.offset + offset, field.width);
  }

  /** Zeroes in all of a slot, so that its padding is written on every way. */
  clear(slot: StackSlot): void {
    for (let at = 0; at < slot.size; at += 8) this.store("r10", { at, width: 8 }, 0, slot.offset);
  }

  loadWide(destination: WritableRegister, value: bigint): void {
    this.#emit({ kind: "load-wide", destination, value: BigInt.asUintN(64, value) });
    this.#known().hold(destination, SCALAR);
  }

  loadMap(destination: WritableRegister, map: MapDefinition): void {
    const other = this.#maps.get(map.name);
    if (other !== undefined && other !== map) throw this.#mistake(`two maps are called ${map.name}`);
    this.#maps.set(map.name, map);
    this.#emit({ kind: "load-map", destination, map: map.name });
    this.#known().hold(destination, { kind: "map", map });
  }

  addressOf(destination: WritableRegister, slot: StackSlot): void {
    this.mov(destination, "r10");
    this.alu("add", destination, slot.offset);
  }

  jump(label: Label): void {
    const state = this.#known();
    this.#emit({ kind: "jump", target: this.#jumpTo(label, state) });
    this.#state = undefined;
  }

  /** A comparison with 0 of what a look-up gave settles whether it is null, on both ways. */
  jumpIf(left: Register, comparison: Comparison, right: Operand, label: Label, bits: Bits = 64): void {
    const held = this.#read(left);
    const [taken, next] = [this.#known().copy(), this.#known().copy()];
    if (held.kind === "value-or-null") {
      const isEquality = comparison === "==" || comparison === "!=";
      if (!isEquality || right !== 0 || bits !== 64) throw this.#mistake(`${left} must be compared with 0 first`);
      taken.settleLookup(held.lookup, comparison === "==");
      next.settleLookup(held.lookup, comparison !== "==");
    } else {
      this.#demandScalar(left);
      if (typeof right !== "number") this.#demandScalar(right);
    }
    this.#emit({ kind: "jump-if", comparison, bits, left, right, target: this.#jumpTo(label, taken) });
    this.#state = next;
  }

  /** Calls a helper with what is in r1 to r5, which are lost. */
  call(name: HelperName): void {
    const { takes, gives } = HELPERS[name];
    const first = this.#read("r1", takes.length > 0);
    this.#demandArguments(name, takes, first.kind === "map" ? first.map : undefined);
    this.#emit({ kind: "call", helper: name });
    for (const register of ARGUMENTS) this.#known().hold(register, UNSET);
    const isLookup = gives === "value-or-null" && first.kind === "map";
    const given: Held = isLookup ? { kind: "value-or-null", map: first.map, lookup: this.#lookups++ } : SCALAR;
    this.#known().hold("r0", given);
  }

  exit(): void {
    this.#demandScalar("r0");
    this.#emit({ kind: "exit" });
    this.#state = undefined;
  }

  /** @throws AssemblyError for a label without a place, or an end without `exit`. */
  finish(): Program {
    if (this.#state !== undefined) throw this.#mistake("the program has no end");
    const instructions = [...this.#instructions];
    for (const [{ name }, { index, jumps }] of this.#labels) {
      if (jumps.length > 0 && index === undefined) throw this.#mistake(`the label ${name} has no place`);
      for (const at of jumps) {
        const jump = instructions[at];
        if (jump !== undefined && "target" in jump) instructions[at] = { ...jump, target: index ?? 0 };
      }
    }
    return { name: this.#name, instructions, notes: [...this.#notes], maps: [...this.#maps.values()] };
  }

  #emit(instruction: Instruction): void {
    this.#known();
    this.#instructions.push(instruction);
    this.#notes.push(callerLine());
  }

  #known(): ProgramState {
    if (this.#state === undefined) throw this.#mistake("no way leads here");
    return this.#state;
  }

  #stateOf(label: Label): LabelState {
    const state = this.#labels.get(label);
    if (state === undefined) throw this.#mistake(`the label ${label.name} belongs to another program`);
    return state;
  }

  /** @returns a place holder; {@link finish} knows the target. */
  #jumpTo(label: Label, state: ProgramState): number {
    const it = this.#stateOf(label);
    if (it.index !== undefined) throw this.#mistake(`${label.name} is behind: programs have no loops`);
    it.state = it.state === undefined ? state.copy() : it.state.join(state);
    it.jumps.push(this.#instructions.length);
    return 0;
  }

  #read(register: Register, isNeeded = true): Held {
    const held = this.#known().held(register);
    if (isNeeded && held.kind === "unset") throw this.#mistake(`${register} holds ${describeHeld(held)}`);
    return held;
  }

  #demandScalar(register: Register): void {
    const held = this.#read(register);
    if (held.kind !== "scalar") throw this.#mistake(`${register} holds ${describeHeld(held)}, and a number is needed`);
  }

  #demandAccess(base: Register, offset: number, field: Pick<Field, "width">, how: "reads" | "writes"): void {
    const held = this.#read(base);
    const { width } = field;
    const where = `${base} holds ${describeHeld(held)}`;
    if (held.kind === "context") {
      if (mayAccess(this.#context, offset, width, how)) return;
      throw this.#mistake(`a program at ${this.#context.name} never ${how} ${width} bytes at ${offset} of its context`);
    }
    if (held.kind !== "stack" && held.kind !== "value") {
      const hint = held.kind === "value-or-null" ? ": compare it with 0 first" : "";
      throw this.#mistake(`${where}, which has no bytes${hint}`);
    }
    const at = held.offset + offset;
    const [low, high] = held.kind === "stack" ? [-STACK_BYTES, 0] : [0, held.map.valueSize];
    if (at < low || at + width > high) throw this.#mistake(`${where}: ${width} bytes at ${at} are outside of it`);
    if (at % width !== 0) throw this.#mistake(`${where}: ${width} bytes at ${at} are not aligned`);
    if (held.kind === "stack" && how === "reads" && !this.#known().isWritten(at, width)) {
      throw this.#mistake(`the stack at ${at} is read before all of its ${width} bytes are written`);
    }
  }

  #demandArguments(name: string, takes: readonly ArgumentKind[], map: MapDefinition | undefined): void {
    takes.forEach((kind, index) => {
      const register = ARGUMENTS[index] ?? "r5";
      const held = this.#read(register);
      const why = this.#argumentProblem(kind, held, map);
      if (why !== undefined) throw this.#mistake(`${name}: ${register} holds ${describeHeld(held)}; ${why}`);
    });
  }

  /** Why the verifier would refuse an argument, in words. @param map the first argument, if it is one. */
  #argumentProblem(kind: ArgumentKind, held: Held, map: MapDefinition | undefined): string | undefined {
    if (kind !== "key" && kind !== "value") return held.kind === kind ? undefined : `it takes a ${kind} there`;
    const size = (kind === "key" ? map?.keySize : map?.valueSize) ?? 0;
    if (held.kind === "value" && held.offset + size <= held.map.valueSize) return undefined;
    if (held.kind !== "stack" || held.offset + size > 0) return `its ${kind} has ${size} bytes`;
    return this.#known().isWritten(held.offset, size) ? undefined : `not all ${size} bytes of the ${kind} are written`;
  }

  #mistake(why: string): AssemblyError {
    return new AssemblyError(`${this.#name}, ${callerLine()}: ${why}`);
  }
}

/** Deep enough for the assembler's own functions between its caller and here. */
const FRAMES = 8;

/** File and line of the code that uses the assembler: `connect.ts:42`. */
function callerLine(): string {
  const site = getCallSites(FRAMES).find(({ scriptName }) => scriptName !== import.meta.url && scriptName !== "");
  const file = site?.scriptName.slice(site.scriptName.lastIndexOf("/") + 1);
  return `${file}:${site?.lineNumber}`;
}
