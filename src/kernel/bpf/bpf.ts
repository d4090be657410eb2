/**
 * The kernel's eBPF: maps, programs and their links to cgroups. Calls are synchronous and take microseconds. Unattached objects
 * end when their descriptors are closed. Two implementations pass one contract: `kernel-bpf.ts`, and an in-memory one for tests.
 */
import type { Hook } from "./hooks.ts";
import type { MapDefinition, Program } from "./map-definition.ts";

export interface BpfMap {
  readonly definition: MapDefinition;
  /** A copy of the value, or undefined. */
  lookup(key: Uint8Array): Uint8Array | undefined;
  /** @throws BpfError `E2BIG` if the map is full, or the array is too short. */
  update(key: Uint8Array, value: Uint8Array): void;
  /** Returns whether it existed. @throws BpfError `EINVAL` for arrays. */
  delete(key: Uint8Array): boolean;
  /** Deletes an element. @returns the value that it had; undefined if there was none. */
  take(key: Uint8Array): Uint8Array | undefined;
  /** As {@link update}, but leaves an existing element as it is. @returns whether there was none. */
  add(key: Uint8Array, value: Uint8Array): boolean;
  /** Writes many elements in few calls; keys and values are concatenated. Stops at the first error; elements before it are written. */
  updateAll(keys: Uint8Array, values: Uint8Array): void;
  /** Copies of all elements, unordered. May miss elements that change meanwhile. */
  entries(): readonly (readonly [key: Uint8Array, value: Uint8Array])[];
  /**
   * An array's memory as words: readers in the kernel see each word old or new, never half of each. Elements start every
   * `valueSize` bytes, rounded up to whole words. The view ends with {@link close}. @throws BpfError if it cannot be mapped.
   */
  words(): BigUint64Array;
  close(): void;
}

export interface BpfProgram {
  readonly id: number;
  close(): void;
}

/** A program attached to a hook as long as this is open. */
export interface BpfLink {
  readonly id: number;
  /** The inode number of the cgroup's directory; 0 if the cgroup is gone. */
  readonly cgroupId: bigint;
  readonly programId: number;
  /**
   * Replaces the program atomically: every connection sees one of the two.
   * @param old the expected current program. @default any @throws BpfError `EPERM` if it is another; `ENOLINK` without a cgroup.
   */
  replace(program: BpfProgram, old?: BpfProgram): void;
  /** Detaches it, wherever it is pinned, and closes it. */
  close(): void;
  /** Closes it. If pinned, it stays attached. */
  release(): void;
}

/** A link of any process. */
export interface FoundLink {
  readonly link: BpfLink;
  /** The first value of the array that its program uses, or another program that shares a map with it. */
  readonly value: Uint8Array | undefined;
}

/**
 * Names in a bpf file system: named objects outlive this process, and the next one finds them. Paths are absolute;
 * folders must be on such a file system. Everything throws BpfError with the errno of the file system or of bpf(2).
 */
export interface BpfPins {
  /** Names in a folder; undefined if it does not exist. */
  list(folder: string): readonly string[] | undefined;
  /** Creates missing parents too. Only root has access. */
  makeFolder(path: string): void;
  /** @throws BpfError `EEXIST` if the name is taken. */
  pin(what: BpfMap | BpfProgram | BpfLink, path: string): void;
  /** Gives an object another name, which may be another one's until then. */
  move(from: string, to: string): void;
  /** Removes a name, or an empty folder. Objects without any other name or descriptor end. @returns whether it existed. */
  remove(path: string): boolean;
  /**
   * Opens a map. @param define returns the expected definition for a number of elements.
   * @returns undefined if nothing has the name. @throws BpfError `invalid` if it is another map, or no map.
   */
  map(path: string, define: (maxEntries: number) => MapDefinition): BpfMap | undefined;
  /** As {@link map}; a link of another hook is `invalid`. @param hook @default any hook of a cgroup */
  link(path: string, hook?: Hook): BpfLink | undefined;
}

export interface Bpf {
  /** @throws BpfError */
  createMap(definition: MapDefinition): BpfMap;
  /**
   * @param maps those that the program refers to, by definition.
   * @throws BpfError with the rejected instruction and the verifier's reason.
   */
  loadProgram(program: Program, hook: Hook, maps?: readonly BpfMap[]): BpfProgram;
  /** Whether programs at a hook can set the call's errno (bpf_set_retval, Linux 5.18). True if no program can be loaded. */
  canSetReturnValue(hook: Hook): boolean;
  /** @param cgroup its directory in a cgroup2 file system. */
  attach(program: BpfProgram, hook: Hook, cgroup: string): BpfLink;
  /** Ids of the programs attached to the cgroup itself, not to its ancestors. */
  attached(hook: Hook, cgroup: string): readonly number[];
  /**
   * Links at any cgroup, of any process, whose programs' names begin with the prefix.
   * @param mapPrefix of the name of the map whose first value is wanted. @throws BpfError `EPERM` without CAP_SYS_ADMIN.
   */
  findLinks(prefix: string, mapPrefix: string): readonly FoundLink[];
  /** The inode number of a cgroup's directory. @throws BpfError if there is none. */
  cgroupId(cgroup: string): bigint;
  readonly pins: BpfPins;
}
