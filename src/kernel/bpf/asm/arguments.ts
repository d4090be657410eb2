/** Whether a register holds what a call takes. */
import type { MapDefinition } from "../map-definition.ts";
import type { ArgumentKind } from "./helpers.ts";
import type { Held, ProgramState } from "./program-state.ts";

/** What of the other arguments an argument depends on. */
interface Beside {
  /** The first argument, if it is a map. */
  readonly map: MapDefinition | undefined;
  /** The argument after this one. */
  readonly next: Held;
}

/** The number in a register; −1 when it is not the same on every way, or none. Pure. */
export function numberHeld(held: Held): number {
  return held.kind === "scalar" ? (held.value ?? -1) : -1;
}

/** Why the verifier would refuse an argument, in words, or undefined. Pure. */
export function argumentProblem(
  state: ProgramState,
  kind: ArgumentKind,
  held: Held,
  { map, next }: Beside,
): string | undefined {
  if (kind === "map" || kind === "context" || kind === "scalar") {
    return held.kind === kind ? undefined : `it takes a ${kind} there`;
  }
  if (kind === "size") return numberHeld(held) > 0 ? undefined : "the size must be one number on every way";
  if (typeof kind === "object" && "object" in kind) {
    const isIt = held.kind === "object" && held.object === kind.object;
    return isIt ? undefined : `it takes a reference to ${kind.object} there`;
  }
  const what = typeof kind === "object" ? "memory" : kind;
  const size = sizeOf(kind, map, next);
  if (held.kind === "value" && held.offset + size <= held.map.valueSize) return undefined;
  if (held.kind !== "stack" || held.offset + size > 0) return `its ${what} has ${size} bytes`;
  if (what === "room" || state.isWritten(held.offset, size)) return undefined;
  return `not all ${size} bytes of the ${what} are written`;
}

function sizeOf(kind: ArgumentKind, map: MapDefinition | undefined, next: Held): number {
  if (typeof kind === "object") return "bytes" in kind ? kind.bytes : 0;
  if (kind === "key") return map?.keySize ?? 0;
  if (kind === "value") return map?.valueSize ?? 0;
  // A size that is not known is found with the argument after it.
  return Math.max(0, numberHeld(next));
}
