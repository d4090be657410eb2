/** An assembled program: what is loaded, and what is known of it for messages. */
import type { MapDefinition } from "../map-definition.ts";
import type { Instruction } from "./instruction.ts";

export interface Program {
  /** At most 15 characters of `[A-Za-z0-9_.]`. */
  readonly name: string;
  readonly instructions: readonly Instruction[];
  /** For each instruction, the line of ours that emitted it: `connect.ts:42`. */
  readonly notes: readonly string[];
  /** The maps that it refers to. */
  readonly maps: readonly MapDefinition[];
}
