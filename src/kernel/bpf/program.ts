/** A program as it is loaded. */
import type { MapDefinition } from "./map-definition.ts";

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
