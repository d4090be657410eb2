/** Calls for elements of maps, whose keys and values are on the stack. */
import type { Assembler, StackSlot } from "../asm/assembler.ts";
import type { MapDefinition } from "../map-definition.ts";

/** Leaves a pointer to the value in r0, or 0. */
export function lookUp(a: Assembler, map: MapDefinition, key: StackSlot): void {
  a.loadMap("r1", map);
  a.addressOf("r2", key);
  a.call("map_lookup_elem");
}

/** Leaves 0 in r0, or a negative errno. */
export function update(a: Assembler, map: MapDefinition, key: StackSlot, value: StackSlot): void {
  a.loadMap("r1", map);
  a.addressOf("r2", key);
  a.addressOf("r3", value);
  a.mov("r4", 0);
  a.call("map_update_elem");
}

/** Leaves 0 in r0, or a negative errno. */
export function remove(a: Assembler, map: MapDefinition, key: StackSlot): void {
  a.loadMap("r1", map);
  a.addressOf("r2", key);
  a.call("map_delete_elem");
}
