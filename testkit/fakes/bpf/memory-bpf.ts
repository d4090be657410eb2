/** {@link Bpf} in memory: programs run in the interpreter. */
import { createHash } from "node:crypto";
import { disassemble } from "../../../src/kernel/bpf/asm/disassemble.ts";
import { encodeProgram } from "../../../src/kernel/bpf/asm/encode.ts";
import type { Instruction, Register } from "../../../src/kernel/bpf/asm/instruction.ts";
import type { Program } from "../../../src/kernel/bpf/asm/program.ts";
import type { Bpf, BpfLink, BpfMap, BpfProgram, UpdateMode } from "../../../src/kernel/bpf/bpf.ts";
import { BpfError } from "../../../src/kernel/bpf/bpf-error.ts";
import type { Hook } from "../../../src/kernel/bpf/contexts.ts";
import { type MapDefinition, mapDefinitionProblem } from "../../../src/kernel/bpf/map-definition.ts";
import { explainVerifierLog } from "../../../src/kernel/bpf/verifier-log.ts";
import { errnoName } from "../../../src/kernel/netlink/errors.ts";
import { interpret } from "./interpreter.ts";
import { type MapWriteResult, MemoryMap } from "./memory-map.ts";

const MODES = { any: 0, create: 1, replace: 2 } as const;

/**
 * @param cgroups the number of each directory.
 * @param elements what maps hold, by name, for those that a test reads itself.
 */
export function memoryBpf(
  cgroups: ReadonlyMap<string, bigint> = new Map(),
  elements: ReadonlyMap<string, MemoryMap> = new Map(),
): Bpf {
  const links: MemoryLink[] = [];
  let programs = 0;
  return {
    createMap: (definition) => new OpenMap(definition, elements.get(definition.name)),
    loadProgram(program, _place, maps = []) {
      refuseUnset(program);
      return new MemoryProgram(++programs, program, openMaps(program, maps));
    },
    attach(program, hook, cgroup) {
      const cgroupId = cgroups.get(cgroup);
      if (cgroupId === undefined) throw new BpfError("ENOENT", `bpf: no cgroup ${cgroup}`);
      const link = new MemoryLink(program, hook, cgroup, cgroupId, (gone) => links.splice(links.indexOf(gone), 1));
      links.push(link);
      return link;
    },
    attached: (hook, cgroup) =>
      links.filter((link) => link.hook === hook && link.cgroup === cgroup).map(({ programId }) => programId),
  };
}

class OpenMap implements BpfMap {
  readonly definition: MapDefinition;
  readonly memory: MemoryMap;

  constructor(definition: MapDefinition, memory: MemoryMap | undefined) {
    const problem = mapDefinitionProblem(definition);
    if (problem !== undefined) throw new BpfError("invalid", `bpf: map ${definition.name}: ${problem}`);
    this.definition = definition;
    this.memory = memory ?? new MemoryMap(definition);
  }

  lookup(key: Uint8Array): Uint8Array | undefined {
    this.#demandSize("key", key, this.definition.keySize);
    return this.memory.lookup(key)?.bytes.slice();
  }

  update(key: Uint8Array, value: Uint8Array, mode: UpdateMode = "any"): void {
    this.#demandSize("key", key, this.definition.keySize);
    this.#demandSize("value", value, this.definition.valueSize);
    this.#demandDone(this.memory.update(key, value, MODES[mode]));
  }

  delete(key: Uint8Array): boolean {
    this.#demandSize("key", key, this.definition.keySize);
    const result = this.memory.delete(key);
    if (result === 2) return false;
    this.#demandDone(result);
    return true;
  }

  updateAll(elements: readonly (readonly [Uint8Array, Uint8Array])[]): void {
    for (const [key, value] of elements) this.update(key, value);
  }

  entries(): readonly (readonly [Uint8Array, Uint8Array])[] {
    return this.memory.entries();
  }

  words(): BigUint64Array {
    if (this.definition.isMappable !== true) {
      throw new BpfError("EINVAL", `bpf: mmap of map ${this.definition.name}: EINVAL`);
    }
    return new BigUint64Array(this.memory.memory);
  }

  close(): void {}

  #demandSize(part: string, bytes: Uint8Array, size: number): void {
    if (bytes.length === size) return;
    throw new BpfError("invalid", `bpf: map ${this.definition.name}: a ${part} has ${size} bytes, not ${bytes.length}`);
  }

  #demandDone(result: MapWriteResult): void {
    if (result === 0) return;
    const name = errnoName(result);
    throw new BpfError(name, `bpf: map ${this.definition.name}: ${name}`);
  }
}

function openMaps(program: Program, maps: readonly BpfMap[]): ReadonlyMap<string, MemoryMap> {
  return new Map(
    program.maps.map((definition) => {
      const map = maps.find((one) => one.definition === definition);
      if (map instanceof OpenMap) return [definition.name, map.memory];
      throw new BpfError("invalid", `bpf: program ${program.name}: its map ${definition.name} is not given`);
    }),
  );
}

/** The one thing of the verifier's that is done here: a register that nothing wrote before the first jump. */
function refuseUnset(program: Program): void {
  const written = new Set<Register>(["r1", "r10"]);
  const lines = disassemble(program.instructions);
  for (const [index, one] of program.instructions.entries()) {
    if (one.kind === "jump" || one.kind === "jump-if") return;
    const read = readOf(one).find((register) => !written.has(register));
    if (read !== undefined) {
      const log = `${lines[index]}\n${read.toUpperCase()} !read_ok`;
      throw new BpfError("EACCES", `bpf: PROG_LOAD: EACCES: ${explainVerifierLog(program, log)}`);
    }
    if (one.kind === "call") written.add("r0");
    if ("destination" in one) written.add(one.destination);
  }
}

function readOf(one: Instruction): readonly Register[] {
  if (one.kind === "load") return [one.base];
  return "source" in one && typeof one.source !== "number" ? [one.source] : [];
}

class MemoryProgram implements BpfProgram {
  readonly id: number;
  readonly tag: string;
  readonly #program: Program;
  readonly #maps: ReadonlyMap<string, MemoryMap>;

  constructor(id: number, program: Program, maps: ReadonlyMap<string, MemoryMap>) {
    this.id = id;
    this.#program = program;
    this.#maps = maps;
    this.tag = createHash("sha1").update(encodeProgram(program.instructions)).digest("hex").slice(0, 16);
  }

  run(context: Uint8Array): number {
    return Number(BigInt.asUintN(32, interpret(this.#program.instructions, context, this.#maps).result));
  }

  close(): void {}
}

class MemoryLink implements BpfLink {
  readonly hook: Hook;
  readonly cgroup: string;
  readonly cgroupId: bigint;
  readonly #onClose: (link: MemoryLink) => void;
  #program: BpfProgram;

  constructor(program: BpfProgram, hook: Hook, cgroup: string, id: bigint, onClose: (link: MemoryLink) => void) {
    this.#program = program;
    this.hook = hook;
    this.cgroup = cgroup;
    this.cgroupId = id;
    this.#onClose = onClose;
  }

  get programId(): number {
    return this.#program.id;
  }

  replace(program: BpfProgram): void {
    this.#program = program;
  }

  close(): void {
    this.#onClose(this);
  }
}
