/** {@link Bpf} in memory: programs run in the interpreter. */
import { isDeepStrictEqual } from "node:util";
import type { Bpf, BpfLink, BpfMap, BpfProgram } from "../../../src/kernel/bpf/bpf.ts";
import { BpfError } from "../../../src/kernel/bpf/bpf-error.ts";
import type { Hook } from "../../../src/kernel/bpf/hooks.ts";
import { explainVerifierLog } from "../../../src/kernel/bpf/kernel-bpf.ts";
import { type MapDefinition, mapFields, mapsOf, type Program } from "../../../src/kernel/bpf/map-definition.ts";
import type { RunnableProgram } from "../../../src/kernel/bpf/testing/run-program.ts";
import { errnoName } from "../../../src/kernel/netlink/errors.ts";
import { compare } from "./arithmetic.ts";
import { decodeProgram } from "./decode.ts";
import type { HelperName, Instruction, Register } from "./instruction.ts";
import { interpret } from "./interpreter.ts";
import { type MapWriteResult, MemoryMap } from "./memory-map.ts";
import { memoryPins, type Pinnable, PinnedNames } from "./memory-pins.ts";

/** What is in the kernel, whichever process created it. */
export class BpfMachine {
  /** By folder; may be changed: a removed cgroup is gone, and its links lose it. */
  readonly cgroups: Map<string, bigint>;
  readonly names = new PinnedNames();
  readonly links = new Set<AttachedLink>();
  programs = 0;
  lastLink = 0;
  /** Helpers that this kernel is too old for. */
  readonly unknownHelpers = new Set<HelperName>();

  constructor(cgroups: ReadonlyMap<string, bigint> = new Map()) {
    this.cgroups = new Map(cgroups);
  }

  /** A hook's programs, in the order in which they run. */
  attached(hook: Hook, cgroup: string): readonly number[] {
    const id = this.cgroups.get(cgroup);
    const there = [...this.links].filter((link) => link.isThere && link.hook === hook && link.cgroupId === id);
    return there.map(({ program }) => program.id);
  }
}

/** The kernel as one process has it open. */
export interface MemoryBpf extends Bpf {
  /** The process has been killed: what it had open is closed. */
  end(): void;
}

/**
 * @param machine the machine, or the directory number of each cgroup.
 * @param elements contents of maps, by name, for those that a test reads itself.
 */
export function memoryBpf(
  machine: BpfMachine | ReadonlyMap<string, bigint> = new BpfMachine(),
  elements: ReadonlyMap<string, MemoryMap> = new Map(),
): MemoryBpf {
  const kernel = machine instanceof BpfMachine ? machine : new BpfMachine(machine);
  const open = new Set<MemoryLink>();
  const cgroupId = (cgroup: string): bigint => {
    const id = kernel.cgroups.get(cgroup);
    if (id === undefined) throw new BpfError("ENOENT", `bpf: ${cgroup}: ENOENT`);
    return id;
  };
  const opened = (link: AttachedLink): MemoryLink => {
    const handle = new MemoryLink(link, kernel.cgroups, (closed) => open.delete(closed));
    open.add(handle);
    return handle;
  };
  return {
    createMap: (definition) => new OpenMap(definition, elements.get(definition.name)),
    loadProgram(program, _place, maps = []) {
      const instructions = decodeProgram(program);
      refuseUnset(program.name, instructions);
      if (callsOf(instructions).some((helper) => kernel.unknownHelpers.has(helper)))
        throw new BpfError("EINVAL", `bpf: PROG_LOAD: EINVAL: ${program.name}: invalid func`);
      return new MemoryProgram(++kernel.programs, program, openMaps(program, maps));
    },
    canSetReturnValue: () => !kernel.unknownHelpers.has("set_retval"),
    attach(program, hook, cgroup) {
      const link = new AttachedLink(++kernel.lastLink, ours(program), hook, cgroupId(cgroup), (gone) =>
        kernel.links.delete(gone),
      );
      kernel.links.add(link);
      return opened(link);
    },
    cgroupId,
    findLinks(prefix, mapPrefix) {
      const cgroups = new Set(kernel.cgroups.values());
      const found = [...kernel.links].filter(
        ({ isThere, program, cgroupId: id }) => isThere && cgroups.has(id) && program.name.startsWith(prefix),
      );
      const values = new Map<MemoryMap, Uint8Array>();
      for (const { program } of found) {
        const [, map] = [...program.maps].find(([name]) => name.startsWith(mapPrefix)) ?? [];
        const value = map?.lookup(new Uint8Array(4))?.bytes.slice();
        if (value !== undefined) for (const one of program.maps.values()) values.set(one, value);
      }
      const firstValue = ({ program }: AttachedLink) =>
        [...program.maps.values()].map((map) => values.get(map)).find((value) => value !== undefined);
      return found.map((link) => ({ link: opened(link), value: firstValue(link) }));
    },
    attached: (hook, cgroup) => kernel.attached(hook, cgroup),
    pins: memoryPins(kernel.names, {
      pinnable(what) {
        if (what instanceof OpenMap || what instanceof MemoryProgram) return what;
        if (what instanceof MemoryLink) return what.link;
        throw new BpfError("invalid", "bpf: this object belongs to another kernel");
      },
      map(found, define, path) {
        if (!(found instanceof OpenMap)) throw new TypeError(`${path} is no map of this kernel`);
        const { definition } = found;
        const wanted = define(definition.maxEntries);
        if (isDeepStrictEqual(mapFields(wanted), mapFields(definition))) return new OpenMap(wanted, found.memory);
        throw new BpfError("invalid", `bpf: ${path} is not the expected object: it is another map`);
      },
      link(found, hook, path) {
        if (found instanceof AttachedLink && found.hook === (hook ?? found.hook)) return opened(found);
        throw new BpfError("invalid", `bpf: ${path} is not the expected object: it is no link of ${hook}`);
      },
    }),
    end() {
      for (const link of [...open]) link.drop();
    },
  };
}

/** A program that runs when a test says so. @throws BpfError if one of its maps is not given. */
export function memoryRunnable(program: Program, maps: readonly BpfMap[]): RunnableProgram {
  const elements = openMaps(program, maps);
  const run = (context: Uint8Array): number => Number(BigInt.asUintN(32, interpret(program, context, elements).result));
  return { run, close() {} };
}

function ours(program: BpfProgram): MemoryProgram {
  if (program instanceof MemoryProgram) return program;
  throw new BpfError("invalid", "bpf: a program of another kernel");
}

/** The contents of one of this kernel's maps, for programs that a test runs itself. */
export function elementsOf(map: BpfMap): MemoryMap {
  if (map instanceof OpenMap) return map.memory;
  throw new BpfError("invalid", `bpf: map ${map.definition.name} is of another kernel`);
}

class OpenMap implements BpfMap, Pinnable {
  readonly kind = "map";
  readonly definition: MapDefinition;
  readonly memory: MemoryMap;

  constructor(definition: MapDefinition, memory: MemoryMap | undefined) {
    this.definition = definition;
    this.memory = memory ?? new MemoryMap(definition);
  }

  lookup(key: Uint8Array): Uint8Array | undefined {
    this.#demandSize("key", key, this.definition.keySize);
    return this.memory.lookup(key)?.bytes.slice();
  }

  update(key: Uint8Array, value: Uint8Array): void {
    this.#demandSize("key", key, this.definition.keySize);
    this.#demandSize("value", value, this.definition.valueSize);
    this.#demandDone(this.memory.update(key, value));
  }

  delete(key: Uint8Array): boolean {
    this.#demandSize("key", key, this.definition.keySize);
    const result = this.memory.delete(key);
    if (result === 2) return false;
    this.#demandDone(result);
    return true;
  }

  take(key: Uint8Array): Uint8Array | undefined {
    const value = this.lookup(key);
    this.delete(key);
    return value;
  }

  add(key: Uint8Array, value: Uint8Array): boolean {
    const result = this.memory.update(key, value, 1);
    if (result === 17) return false;
    this.#demandDone(result);
    return true;
  }

  updateAll(keys: Uint8Array, values: Uint8Array): void {
    const { keySize, valueSize } = this.definition;
    for (let index = 0; index * keySize < keys.length; index++) {
      const value = values.subarray(index * valueSize, (index + 1) * valueSize);
      this.update(keys.subarray(index * keySize, (index + 1) * keySize), value);
    }
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

  onNamed(): void {}

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
    mapsOf(program).map((definition) => {
      const map = maps.find((one) => one.definition === definition);
      if (map instanceof OpenMap) return [definition.name, map.memory];
      throw new BpfError("invalid", `bpf: program ${program.name}: its map ${definition.name} is not given`);
    }),
  );
}

/** The only check of the verifier's that is done here: a register that nothing wrote before the first jump. */
function refuseUnset(program: string, instructions: readonly Instruction[]): void {
  const written = new Set<Register>(["r1", "r10"]);
  for (const [index, one] of instructions.entries()) {
    if (one.kind === "jump" || one.kind === "jump-if") return;
    const read = readOf(one).find((register) => !written.has(register));
    if (read !== undefined) {
      const log = `${index}: (bf) r0 = ${read}\n${read.toUpperCase()} !read_ok`;
      throw new BpfError("EACCES", `bpf: PROG_LOAD: EACCES: ${explainVerifierLog(program, log)}`);
    }
    if (one.kind === "call") written.add("r0");
    if ("destination" in one) written.add(one.destination);
  }
}

/** Helpers that a program can reach: like the verifier, leaves out branches that a constant excludes. */
function callsOf(instructions: readonly Instruction[]): readonly HelperName[] {
  const calls: HelperName[] = [];
  const seen = new Set<string>();
  const ways: (readonly [at: number, known: ReadonlyMap<Register, bigint>])[] = [[0, new Map()]];
  for (let way = ways.pop(); way !== undefined; way = ways.pop()) {
    const [at, before] = way;
    const one = instructions[at];
    const state = `${at} ${[...before].map((pair) => pair.join(" ")).sort()}`;
    if (one === undefined || one.kind === "exit" || seen.has(state)) continue;
    seen.add(state);
    const known = new Map(before);
    if ("destination" in one) known.delete(one.destination);
    if (one.kind === "load-wide") known.set(one.destination, one.value);
    if (one.kind === "call") {
      calls.push(one.helper);
      for (const register of ["r0", "r1", "r2", "r3", "r4", "r5"] as const) known.delete(register);
    }
    if (one.kind === "jump") ways.push([one.target, known]);
    else if (one.kind !== "jump-if") ways.push([at + 1, known]);
    else {
      const [left, right] = [known.get(one.left), typeof one.right === "number" ? BigInt(one.right) : undefined];
      const isKnown = left !== undefined && right !== undefined;
      const isTaken = isKnown && compare(one.comparison, one.bits, left, right);
      if (!isKnown || isTaken) ways.push([one.target, known]);
      if (!isTaken) ways.push([at + 1, known]);
    }
  }
  return calls;
}

function readOf(one: Instruction): readonly Register[] {
  if (one.kind === "load") return [one.base];
  return "source" in one && typeof one.source !== "number" ? [one.source] : [];
}

class MemoryProgram implements BpfProgram, Pinnable {
  readonly kind = "program";
  readonly id: number;
  /** By name: the maps that it reads and writes. */
  readonly maps: ReadonlyMap<string, MemoryMap>;
  readonly #program: Program;

  get name(): string {
    return this.#program.name;
  }

  constructor(id: number, program: Program, maps: ReadonlyMap<string, MemoryMap>) {
    this.id = id;
    this.#program = program;
    this.maps = maps;
  }

  close(): void {}

  onNamed(): void {}
}

/** A link in the kernel: exists while it has a name or is open somewhere. */
class AttachedLink implements Pinnable {
  readonly kind = "link";
  readonly id: number;
  readonly hook: Hook;
  readonly cgroupId: bigint;
  readonly #onGone: (link: AttachedLink) => void;
  program: MemoryProgram;
  isDetached = false;
  #holders = 0;

  constructor(id: number, program: MemoryProgram, hook: Hook, cgroupId: bigint, onGone: (link: AttachedLink) => void) {
    this.id = id;
    this.program = program;
    this.hook = hook;
    this.cgroupId = cgroupId;
    this.#onGone = onGone;
  }

  get isThere(): boolean {
    return !this.isDetached && this.#holders > 0;
  }

  onNamed(isNamed: boolean): void {
    this.hold(isNamed);
  }

  hold(isHeld: boolean): void {
    this.#holders += isHeld ? 1 : -1;
    if (this.#holders === 0) this.#onGone(this);
  }
}

class MemoryLink implements BpfLink {
  readonly link: AttachedLink;
  readonly #cgroups: ReadonlyMap<string, bigint>;
  readonly #onClose: (link: MemoryLink) => void;
  #isOpen = true;

  constructor(link: AttachedLink, cgroups: ReadonlyMap<string, bigint>, onClose: (link: MemoryLink) => void) {
    this.link = link;
    this.#cgroups = cgroups;
    this.#onClose = onClose;
    link.hold(true);
  }

  get cgroupId(): bigint {
    const { cgroupId, isDetached } = this.link;
    return !isDetached && [...this.#cgroups.values()].includes(cgroupId) ? cgroupId : 0n;
  }

  get id(): number {
    return this.link.id;
  }

  get programId(): number {
    return this.link.program.id;
  }

  replace(program: BpfProgram, old?: BpfProgram): void {
    if (this.cgroupId === 0n) throw new BpfError("ENOLINK", "bpf: LINK_UPDATE: ENOLINK");
    if (old !== undefined && old.id !== this.programId) throw new BpfError("EPERM", "bpf: LINK_UPDATE: EPERM");
    this.link.program = ours(program);
  }

  close(): void {
    this.link.isDetached = true;
    this.drop();
  }

  release(): void {
    this.drop();
  }

  /** As the kernel does for a process that has ended. */
  drop(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.link.hold(false);
    this.#onClose(this);
  }
}
