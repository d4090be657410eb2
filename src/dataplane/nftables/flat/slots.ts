/**
 * Which endpoint answers in which slot of a frontend: a packet draws a slot, each as likely as any other. A frontend with few
 * endpoints has one slot for each, so shares are exact. One with many has a table of a power of two, in which one endpoint more
 * or less moves few slots: at least {@link LEAST_SLOTS_EACH} for each endpoint, so that no share differs by more than
 * 1/{@link LEAST_SLOTS_EACH} of it.
 */
import { hash } from "node:crypto";
import type { NftTarget } from "../../../kernel/nftables/ruleset.ts";

/** With more endpoints the slots are those of a table. */
export const MOST_EXACT = 64;
/** Slots for each endpoint of a table, at least. */
export const LEAST_SLOTS_EACH = 8;

/** An endpoint as far as it has slots. */
export interface SlotOwner extends NftTarget {
  /** Its identity. */
  readonly text: string;
}

/** How many slots a frontend with so many endpoints has. Pure. */
export function slotCount(endpoints: number): number {
  if (endpoints <= MOST_EXACT) return endpoints;
  let slots = MOST_EXACT;
  while (slots < endpoints * LEAST_SLOTS_EACH) slots *= 2;
  return slots;
}

/** The target of each slot, in order. The same endpoints in the same order give the same slots. Pure. */
export function slotTargets(endpoints: readonly SlotOwner[]): readonly NftTarget[] {
  const targets = endpoints.map(({ ip, port }): NftTarget => ({ ip, port }));
  return targets.length <= MOST_EXACT ? targets : dealtSlots(endpoints, targets);
}

/**
 * The endpoints choose in turns, each the next free slot in an order of its own (as Maglev does, Eisenbud et al. 2016, §3.4):
 * no two differ by more than one slot, and who comes or goes leaves most of the others' choices as they were.
 */
function dealtSlots(endpoints: readonly SlotOwner[], targets: readonly NftTarget[]): readonly NftTarget[] {
  const count = slotCount(endpoints.length);
  const orders = endpoints.map(({ text }) => orderOf(text, count));
  const slots: (NftTarget | undefined)[] = Array.from({ length: count });
  for (let taken = 0; ; ) {
    for (const [index, order] of orders.entries()) {
      while (slots[order.next] !== undefined) order.next = (order.next + order.step) & (count - 1);
      slots[order.next] = targets[index];
      taken += 1;
      if (taken === count) return slots.filter((target) => target !== undefined);
    }
  }
}

/** Where an endpoint begins, and how far it goes each time: an odd step reaches every slot of a power of two. */
function orderOf(text: string, count: number): { next: number; readonly step: number } {
  const digest = hash("sha256", text, "buffer");
  return { next: digest.readUInt32LE(0) & (count - 1), step: (digest.readUInt32LE(4) | 1) & (count - 1) };
}
