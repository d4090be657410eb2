/** What a map is made of. Programs name their maps by definition; descriptors come in when a program is loaded. */

/** Under the kernel's names (reference ebpf-programs.md §3.4). */
export const MAP_TYPES = { hash: 1, array: 2, "lru-hash": 9 } as const;

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

/** `map_flags` of a definition. */
export function mapFlags(definition: MapDefinition): number {
  return (definition.isAllocatedOnWrite === true ? NO_PREALLOC : 0) | (definition.isMappable === true ? MMAPABLE : 0);
}

/** Why the kernel would refuse a definition, in words, or undefined. */
export function mapDefinitionProblem(definition: MapDefinition): string | undefined {
  const { name, type, keySize, valueSize, maxEntries } = definition;
  if (!/^[A-Za-z0-9_.]{1,15}$/.test(name)) return "its name must have 1 to 15 letters, digits, underscores or dots";
  if (type === "array" && keySize !== 4) return `the key of an array has 4 bytes, not ${keySize}`;
  if (!(keySize > 0)) return "a key needs at least one byte";
  if (!(valueSize > 0)) return "a value needs at least one byte";
  if (!(maxEntries > 0)) return "it needs room for at least one element";
  if (type !== "array" && definition.isMappable === true) return "only arrays can be mapped";
  if (type !== "hash" && definition.isAllocatedOnWrite === true) return "only a hash can allocate on write";
  return undefined;
}

/** What the kernel says of a map that is there. */
export interface MapFacts {
  readonly name: string;
  /** Under the kernel's number. */
  readonly type: number;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  readonly flags: number;
}

/** In what a map differs from its definition, in words; undefined when it is that map. Pure. */
export function mapDifference(definition: MapDefinition, facts: MapFacts): string | undefined {
  const { name, type, keySize, valueSize, maxEntries } = definition;
  const wanted: MapFacts = { name, type: MAP_TYPES[type], keySize, valueSize, maxEntries, flags: mapFlags(definition) };
  for (const [what, value] of Object.entries(wanted)) {
    const found: string | number = facts[what as keyof MapFacts]; // its own keys
    if (found !== value) return `its ${what} is ${found}, not ${value}`;
  }
  return undefined;
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
