/**
 * The kernel's eBPF: maps, programs and their links to cgroups. Calls are synchronous and take microseconds. What is not attached
 * is gone when its descriptors are closed. Two implementations pass one contract: `kernel-bpf.ts`, and one in memory for tests.
 */
import type { Hook } from "./hooks.ts";
import type { MapDefinition, Program } from "./map-definition.ts";

export interface BpfMap {
  readonly definition: MapDefinition;
  /** A copy of the value, or undefined. */
  lookup(key: Uint8Array): Uint8Array | undefined;
  /** @throws BpfError `E2BIG` when the map is full, or an array is not that long. */
  update(key: Uint8Array, value: Uint8Array): void;
  /** Whether it was there. @throws BpfError `EINVAL` for arrays. */
  delete(key: Uint8Array): boolean;
  /** Many elements in few calls: all keys one after the other, and all values. It stops at the first error; those before it are written. */
  updateAll(keys: Uint8Array, values: Uint8Array): void;
  /** Copies of all elements, in no order. Elements that change meanwhile may be missing. */
  entries(): readonly (readonly [key: Uint8Array, value: Uint8Array])[];
  /**
   * The memory of an array, as words: readers in the kernel see each word old or new, never half. An element begins every
   * `valueSize` bytes, rounded up to whole words. The view ends with {@link close}. @throws BpfError when it cannot be mapped.
   */
  words(): BigUint64Array;
  close(): void;
}

export interface BpfProgram {
  readonly id: number;
  /** The same instructions have the same tag: 16 hexadecimal digits. */
  readonly tag: string;
  close(): void;
}

/** A program that runs at a hook, for as long as this is open. */
export interface BpfLink {
  readonly id: number;
  /** The inode number of the cgroup's directory; 0 when the cgroup is gone. */
  readonly cgroupId: bigint;
  readonly programId: number;
  /**
   * Another program takes over; no connection sees neither or both.
   * @param old the one that must be there now. @default any @throws BpfError `EPERM` when another is there; `ENOLINK` without a cgroup.
   */
  replace(program: BpfProgram, old?: BpfProgram): void;
  /** Ends it wherever it is pinned, and closes. */
  close(): void;
  /** Closes. Where it is pinned, it goes on. */
  release(): void;
}

/**
 * Names in a bpf file system: what has one outlives this process, and the next one finds it there. Paths are absolute; folders need
 * to be on such a file system. Everything throws BpfError with the errno of the file system or of bpf(2).
 */
export interface BpfPins {
  /** Names in a folder; undefined when there is none. */
  list(folder: string): readonly string[] | undefined;
  /** With those above it. For root alone. */
  makeFolder(path: string): void;
  /** @throws BpfError `EEXIST` when the name is taken. */
  pin(what: BpfMap | BpfProgram | BpfLink, path: string): void;
  /** Takes away a name, or an empty folder. What has no other name and no descriptor ends. @returns whether it was there. */
  remove(path: string): boolean;
  /**
   * Opens a map. @param define what it must be, told how many elements it has room for.
   * @returns undefined when the name is free. @throws BpfError `invalid` when it is another map, or none.
   */
  map(path: string, define: (maxEntries: number) => MapDefinition): BpfMap | undefined;
  /** As {@link map}. */
  program(path: string): BpfProgram | undefined;
  /** As {@link map}; a link of another hook is `invalid`. @param hook @default any hook of a cgroup */
  link(path: string, hook?: Hook): BpfLink | undefined;
}

export interface Bpf {
  /** @throws BpfError */
  createMap(definition: MapDefinition): BpfMap;
  /**
   * @param maps those that the program refers to, by definition.
   * @throws BpfError with the refused instruction and the verifier's reason.
   */
  loadProgram(program: Program, hook: Hook, maps?: readonly BpfMap[]): BpfProgram;
  /** Whether programs at a hook may say what the call fails with (bpf_set_retval, Linux 5.18). True where no program can be loaded. */
  canSetReturnValue(hook: Hook): boolean;
  /** @param cgroup its directory in a cgroup2 file system. */
  attach(program: BpfProgram, hook: Hook, cgroup: string): BpfLink;
  /** Ids of the programs attached to the cgroup itself, not to those above it. */
  attached(hook: Hook, cgroup: string): readonly number[];
  /**
   * Links at the cgroup itself, of any process, whose programs' names begin so. @throws BpfError `EPERM` without CAP_SYS_ADMIN, where
   * anything is attached.
   */
  findLinks(cgroup: string, prefix: string): readonly BpfLink[];
  /** The number of a cgroup's directory. @throws BpfError without one. */
  cgroupId(cgroup: string): bigint;
  readonly pins: BpfPins;
}
