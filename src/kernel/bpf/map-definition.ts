/** Map definitions. Programs refer to maps by definition; loading a program inserts the descriptors. */

/** The kernel's map types (reference ebpf-programs.md §3.4). */
const MAP_TYPES = { hash: 1, array: 2, "lru-hash": 9 } as const;

export interface MapDefinition {
  /** At most 15 characters of `[A-Za-z0-9_.]`: the kernel rejects others. */
  readonly name: string;
  readonly type: keyof typeof MAP_TYPES;
  /** In bytes; 4 for arrays. */
  readonly keySize: number;
  /** In bytes. */
  readonly valueSize: number;
  readonly maxEntries: number;
  /** Allocates a hash's elements when they are written. @default false: all at once */
  readonly isAllocatedOnWrite?: boolean;
  /** Allows an array's memory to be mapped into this process. @default false */
  readonly isMappable?: boolean;
}

const NO_PREALLOC = 1;
const MMAPABLE = 1024;

/** The fields that the kernel takes, and reports for an existing map. */
export function mapFields({ name, type, isAllocatedOnWrite, isMappable, ...sizes }: MapDefinition) {
  const mapFlags = (isAllocatedOnWrite === true ? NO_PREALLOC : 0) | (isMappable === true ? MMAPABLE : 0);
  return { ...sizes, mapType: MAP_TYPES[type], mapFlags, mapName: Buffer.from(name) };
}

/** An array's memory in bytes. Every element starts at a multiple of 8 bytes. */
export function arrayBytes({ valueSize, maxEntries }: MapDefinition): number {
  return Math.ceil(valueSize / 8) * 8 * maxEntries;
}

export interface Program {
  /** At most 15 characters of `[A-Za-z0-9_.]`. */
  readonly name: string;
  /** Instructions of 8 bytes each, without map descriptors. */
  readonly code: Uint8Array;
  /** Where map descriptors go: byte offsets of two-slot instructions. */
  readonly references: readonly { readonly at: number; readonly map: MapDefinition }[];
}

/** The maps that a program refers to, without duplicates. */
export const mapsOf = ({ references }: Program): readonly MapDefinition[] => [
  ...new Set(references.map(({ map }) => map)),
];
