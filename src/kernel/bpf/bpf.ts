/**
 * The kernel's eBPF: maps, programs and their links to cgroups. Calls are synchronous and take microseconds. What is not attached
 * is gone when its descriptors are closed. Two implementations pass one contract: `kernel-bpf.ts`, and one in memory for tests.
 */
import type { Program } from "./asm/program.ts";
import type { Hook } from "./contexts.ts";
import type { MapDefinition } from "./map-definition.ts";

/** `create` refuses a key that is there (EEXIST), `replace` one that is not (ENOENT). */
export type UpdateMode = "any" | "create" | "replace";

export interface BpfMap {
  readonly definition: MapDefinition;
  /** A copy of the value, or undefined. */
  lookup(key: Uint8Array): Uint8Array | undefined;
  /** @throws BpfError `E2BIG` when the map is full, or an array is not that long. */
  update(key: Uint8Array, value: Uint8Array, mode?: UpdateMode): void;
  /** Whether it was there. @throws BpfError `EINVAL` for arrays. */
  delete(key: Uint8Array): boolean;
  /** Many elements in few calls. It stops at the first error; those before it are written. */
  updateAll(elements: readonly (readonly [key: Uint8Array, value: Uint8Array])[]): void;
  /** Copies of all elements, in no order. Elements that change meanwhile may be missing. */
  entries(): readonly (readonly [key: Uint8Array, value: Uint8Array])[];
  /**
   * The memory of an array, as words: readers in the kernel see each word old or new, never half. An element begins every
   * `valueSize` bytes, rounded up to whole words. The view ends with {@link close}. @throws BpfError when it cannot be mapped.
   */
  words(): BigUint64Array;
  close(): void;
}

/** Where a program is to run: at a hook of a cgroup, or on demand of a test, over plain memory. */
export type ProgramPlace = Hook | "test";

export interface BpfProgram {
  readonly id: number;
  /** The same instructions have the same tag: 16 hexadecimal digits. */
  readonly tag: string;
  /** Runs it once over a context that it may change. Only for those loaded for a `test`. @returns r0, 32 bits. */
  run(context: Uint8Array): number;
  close(): void;
}

/** A program that runs at a hook, for as long as this is open. */
export interface BpfLink {
  /** The inode number of the cgroup's directory; 0 when the cgroup is gone. */
  readonly cgroupId: bigint;
  readonly programId: number;
  /** Another program takes over; no connection sees neither or both. */
  replace(program: BpfProgram): void;
  /** Ends it, and closes. */
  close(): void;
}

export interface Bpf {
  /** @throws BpfError `invalid` with the reason, or the kernel's errno. */
  createMap(definition: MapDefinition): BpfMap;
  /**
   * @param maps those that the program refers to, by definition.
   * @throws BpfError with the refused instruction, the line of ours that emitted it, and the verifier's reason.
   */
  loadProgram(program: Program, place: ProgramPlace, maps?: readonly BpfMap[]): BpfProgram;
  /** @param cgroup its directory in a cgroup2 file system. */
  attach(program: BpfProgram, hook: Hook, cgroup: string): BpfLink;
  /** Ids of the programs attached to the cgroup itself, not to those above it. */
  attached(hook: Hook, cgroup: string): readonly number[];
}
