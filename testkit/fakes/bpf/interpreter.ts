/**
 * Runs a program without a kernel, over memory whose bounds it checks: it verifies the verifier's promises once more. A
 * register holds a 64-bit number, an address in a region, or a map.
 */
import type { Program } from "../../../src/kernel/bpf/map-definition.ts";
import { compare, compute, convertOrder } from "./arithmetic.ts";
import { decodeProgram } from "./decode.ts";
import { HELPERS, type HelperName, type Instruction, type Operand, type Register } from "./instruction.ts";
import type { MemoryMap } from "./memory-map.ts";
import { MemoryFault, MemoryRegion, type Pointer } from "./memory-region.ts";

type Value = bigint | Pointer | MemoryMap;

/** What helpers return that does not come from maps. */
export interface Surroundings {
  readonly monotonicNs?: () => bigint;
  readonly random32?: () => number;
  readonly socketCookie?: bigint;
  readonly netnsCookie?: bigint;
}

export interface Outcome {
  /** r0 at the exit. */
  readonly result: bigint;
  /** The system call's return value, if the program set it. */
  readonly returnValue: number | undefined;
}

const STACK_BYTES = 512;
const ARGUMENTS: readonly Register[] = ["r1", "r2", "r3", "r4", "r5"];

/** @param context is read and written in place. @throws MemoryFault for what the kernel would never let run. */
export function interpret(
  program: Program,
  context: Uint8Array,
  maps: ReadonlyMap<string, MemoryMap> = new Map(),
  surroundings: Surroundings = {},
): Outcome {
  const instructions = decoded.get(program) ?? decodeProgram(program);
  decoded.set(program, instructions);
  return new Machine(context, maps, surroundings).run(instructions);
}

const decoded = new WeakMap<Program, readonly Instruction[]>();

class Machine {
  readonly #registers = new Map<Register, Value>();
  readonly #maps: ReadonlyMap<string, MemoryMap>;
  readonly #surroundings: Surroundings;
  readonly #stack = MemoryRegion.unwritten("the stack", STACK_BYTES);
  /** Addresses stored in the stack, by position. */
  readonly #spilled = new Map<bigint, Value>();
  #returnValue: number | undefined;

  constructor(context: Uint8Array, maps: ReadonlyMap<string, MemoryMap>, surroundings: Surroundings) {
    this.#maps = maps;
    this.#surroundings = surroundings;
    this.#registers.set("r1", { region: MemoryRegion.of("the context", context), offset: 0n });
    this.#registers.set("r10", {
      region: this.#stack,
      offset: BigInt(STACK_BYTES),
    });
  }

  run(instructions: readonly Instruction[]): Outcome {
    let next = 0;
    for (;;) {
      const instruction = instructions[next];
      if (instruction === undefined) throw new MemoryFault("the program runs beyond its end");
      if (instruction.kind === "exit") {
        return { result: this.#number("r0"), returnValue: this.#returnValue };
      }
      next = this.#step(instruction) ?? next + 1;
    }
  }

  /** @returns where to continue, if not at the next instruction. */
  #step(one: Instruction): number | undefined {
    switch (one.kind) {
      case "alu":
        this.#registers.set(one.destination, this.#alu(one));
        return undefined;
      case "byte-order":
        this.#registers.set(one.destination, convertOrder(one.order, one.bits, this.#number(one.destination)));
        return undefined;
      case "load": {
        const { region, offset } = this.#pointer(one.base);
        const at = offset + BigInt(one.offset);
        const spilled = region === this.#stack && one.width === 8 ? this.#spilled.get(at) : undefined;
        this.#registers.set(one.destination, spilled ?? region.read(at, one.width));
        return undefined;
      }
      case "store": {
        const { region, offset } = this.#pointer(one.base);
        const at = offset + BigInt(one.offset);
        const value = this.#value(one.source);
        // Addresses can only be stored in the stack and loaded back.
        if (region === this.#stack) this.#spill(at, one.width, value);
        if (region !== this.#stack || typeof value === "bigint") region.write(at, one.width, this.#number(one.source));
        return undefined;
      }
      case "atomic-add": {
        const { region, offset } = this.#pointer(one.base);
        const at = offset + BigInt(one.offset);
        region.write(at, 8, region.read(at, 8) + this.#number(one.source));
        return undefined;
      }
      case "load-wide":
        this.#registers.set(one.destination, one.value);
        return undefined;
      case "load-map":
        this.#registers.set(one.destination, this.#mapNamed(one.map));
        return undefined;
      case "jump":
        return one.target;
      case "jump-if":
        return compare(one.comparison, one.bits, this.#comparable(one.left), this.#comparable(one.right))
          ? one.target
          : undefined;
      case "call": {
        const result = this.#call(one.helper);
        for (const register of ARGUMENTS) this.#registers.delete(register);
        this.#registers.set("r0", result);
        return undefined;
      }
      case "exit":
        return undefined;
    }
  }

  #spill(at: bigint, width: number, value: Value): void {
    for (const other of this.#spilled.keys()) {
      if (other < at + BigInt(width) && at < other + 8n) this.#spilled.delete(other);
    }
    if (typeof value === "bigint") return;
    if (width !== 8) throw new MemoryFault("part of an address is stored");
    this.#spilled.set(at, value);
  }

  #alu(one: Extract<Instruction, { kind: "alu" }>): Value {
    const source = this.#value(one.source);
    if (one.operation === "mov" && one.bits === 64) return source;
    const held = one.operation === "mov" ? 0n : this.#value(one.destination);
    if (typeof held === "bigint" && typeof source === "bigint") return compute(one.operation, one.bits, held, source);
    if (one.operation === "add" && one.bits === 64 && typeof source === "bigint" && typeof held === "object") {
      if ("region" in held) return { region: held.region, offset: held.offset + BigInt.asIntN(64, source) };
    }
    throw new MemoryFault(`${one.operation} on an address`);
  }

  #call(helper: HelperName): Value {
    const { random32, monotonicNs, socketCookie, netnsCookie } = this.#surroundings;
    switch (helper) {
      case "map_lookup_elem": {
        const map = this.#map("r1");
        const value = map.lookup(this.#bytes("r2", map.definition.keySize));
        return value === undefined ? 0n : { region: value, offset: 0n };
      }
      case "map_update_elem": {
        const map = this.#map("r1");
        const flags = Number(this.#number("r4"));
        if (flags !== 0 && flags !== 1 && flags !== 2) return BigInt.asUintN(64, -22n);
        const key = this.#bytes("r2", map.definition.keySize);
        return negative(map.update(key, this.#bytes("r3", map.definition.valueSize), flags));
      }
      case "map_delete_elem": {
        const map = this.#map("r1");
        return negative(map.delete(this.#bytes("r2", map.definition.keySize)));
      }
      case "ktime_get_ns":
        return BigInt.asUintN(64, monotonicNs?.() ?? process.hrtime.bigint());
      case "get_prandom_u32":
        return BigInt((random32?.() ?? Math.floor(Math.random() * 2 ** 32)) >>> 0);
      case "get_socket_cookie":
        return socketCookie ?? 1n;
      case "get_current_cgroup_id":
        return 7n;
      case "get_netns_cookie":
        return netnsCookie ?? 1n;
      case "set_retval":
        this.#returnValue = Number(BigInt.asIntN(32, this.#number("r1")));
        return 0n;
      default:
        return absentHelper(helper);
    }
  }

  #value(operand: Operand): Value {
    if (typeof operand === "number") return BigInt.asUintN(64, BigInt(operand));
    const held = this.#registers.get(operand);
    if (held === undefined) throw new MemoryFault(`${operand} is read before it is written`);
    return held;
  }

  #number(operand: Operand): bigint {
    const value = this.#value(operand);
    if (typeof value !== "bigint") throw new MemoryFault(`${operand} holds an address, and a number is needed`);
    return value;
  }

  /** Of an address, only whether it is 0 may be known. */
  #comparable(operand: Operand): bigint {
    const value = this.#value(operand);
    return typeof value === "bigint" ? value : 1n;
  }

  #pointer(register: Register): Pointer {
    const value = this.#value(register);
    if (typeof value === "object" && "region" in value) return value;
    throw new MemoryFault(`${register} holds no address${value === 0n ? ", but null" : ""}`);
  }

  #map(register: Register): MemoryMap {
    const value = this.#value(register);
    if (typeof value === "object" && "definition" in value) return value;
    throw new MemoryFault(`${register} holds no map`);
  }

  #mapNamed(name: string): MemoryMap {
    const map = this.#maps.get(name);
    if (map === undefined) throw new MemoryFault(`there is no map ${name}`);
    return map;
  }

  #bytes(register: Register, size: number): Uint8Array {
    const { region, offset } = this.#pointer(register);
    return region.slice(offset, size);
  }
}

const negative = (errno: number): bigint => BigInt.asUintN(64, BigInt(-errno));

function absentHelper(helper: never): never {
  throw new MemoryFault(`the interpreter has no ${String(helper)} (of ${Object.keys(HELPERS).length})`);
}
