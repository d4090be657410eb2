/** What a map is made of. Programs name their maps by definition; descriptors come in when a program is loaded. */

/** Under the kernel's names (reference ebpf-programs.md §3.4). */
const MAP_TYPES = { hash: 1, array: 2, "lru-hash": 9 } as const;

type MapType = keyof typeof MAP_TYPES;

export interface MapDefinition {
  /** At most 15 characters of `[A-Za-z0-9_.]`: the kernel refuses others. */
  readonly name: string;
  readonly type: MapType;
  /** In bytes; 4 for arrays. */
  readonly keySize: number;
  /** In bytes. */
  readonly valueSize: number;
  readonly maxEntries: number;
  /** Elements of a hash are allocated when they are written. @default false: all at once. */
  readonly isAllocatedOnWrite?: boolean;
  /** An array's memory can be mapped into this process. @default false */
  readonly isMappable?: boolean;
}

const NO_PREALLOC = 1;
const MMAPABLE = 1024;

/** As the kernel takes it, and says it of a map that is there. Pure. */
export function mapFields({ name, type, isAllocatedOnWrite, isMappable, ...sizes }: MapDefinition) {
  const mapFlags = (isAllocatedOnWrite === true ? NO_PREALLOC : 0) | (isMappable === true ? MMAPABLE : 0);
  return { ...sizes, mapType: MAP_TYPES[type], mapFlags, mapName: Buffer.from(name) };
}

/** Bytes of an array's memory. Every element begins at a whole word. */
export function arrayBytes({ valueSize, maxEntries }: MapDefinition): number {
  return Math.ceil(valueSize / 8) * 8 * maxEntries;
}

export interface Program {
  /** At most 15 characters of `[A-Za-z0-9_.]`. */
  readonly name: string;
  /** Instructions of 8 bytes each, without the descriptors of maps. */
  readonly code: Uint8Array;
  /** Where a map's descriptor goes: an instruction of two slots begins at that byte. */
  readonly references: readonly MapReference[];
}

interface MapReference {
  readonly at: number;
  readonly map: MapDefinition;
}

/** The maps that a program refers to, each once. */
export const mapsOf = ({ references }: Program): readonly MapDefinition[] => [
  ...new Set(references.map(({ map }) => map)),
];
