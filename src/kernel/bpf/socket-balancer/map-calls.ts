/** Calls for elements of maps, whose keys and values are on the stack. */
import type { Assembler, Label, StackSlot } from "../asm/assembler.ts";
import { u64 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";
import { VALID_UNTIL } from "./maps.ts";

/** Leaves a pointer to the value in r0, or 0. */
export function lookUp(a: Assembler, map: MapDefinition, key: StackSlot): void {
  a.loadMap("r1", map);
  a.addressOf("r2", key);
  a.call("map_lookup_elem");
}

/** Leaves 0 in r0, or a negative errno. @param mode `create` refuses a key that is there. @default "any" */
export function update(
  a: Assembler,
  map: MapDefinition,
  key: StackSlot,
  value: StackSlot,
  mode: "any" | "create" = "any",
): void {
  a.loadMap("r1", map);
  a.addressOf("r2", key);
  a.addressOf("r3", value);
  a.mov("r4", mode === "create" ? 1 : 0);
  a.call("map_update_elem");
}

/** Leaves 0 in r0, or a negative errno. */
export function remove(a: Assembler, map: MapDefinition, key: StackSlot): void {
  a.loadMap("r1", map);
  a.addressOf("r2", key);
  a.call("map_delete_elem");
}

/** Goes on while the maps are kept true. @param scratch 16 bytes. */
export function demandValid(a: Assembler, map: MapDefinition, scratch: StackSlot, otherwise: Label): void {
  const [key, now] = [u64(0), u64(8)];
  a.call("ktime_get_ns");
  a.store("r10", now, "r0", scratch.offset);
  a.store("r10", key, 0, scratch.offset);
  lookUp(a, map, scratch);
  a.jumpIf("r0", "==", 0, otherwise);
  a.load("r1", "r0", VALID_UNTIL);
  a.load("r2", "r10", now, scratch.offset);
  a.jumpIf("r2", ">", "r1", otherwise);
}
