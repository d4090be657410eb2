/**
 * The endpoint in each slot of a frontend: a packet draws a slot, all equally likely. A frontend with few endpoints, or with
 * weights, has one slot for each cell (model/cells.ts), so shares are exact. One with many has a power of two of slots, at least {@link LEAST_SLOTS_EACH}
 * for each endpoint, so that no share is off by more than 1/{@link LEAST_SLOTS_EACH}. In both cases a changed endpoint
 * changes few slots: each costs one deleted and one added element.
 */
import { hash } from "node:crypto";
import type { NftTarget } from "../../../kernel/nftables/ruleset.ts";
import { inCells } from "../../../model/cells.ts";
import type { Endpoint } from "../../../model/endpoint.ts";

/** With more endpoints than this, the number of slots is a power of two. */
export const MOST_EXACT = 64;
/** The fewest slots for each endpoint when there are more than {@link MOST_EXACT}. */
export const LEAST_SLOTS_EACH = 8;

/** The part of an endpoint that decides its slots. */
interface SlotOwner extends NftTarget, Pick<Endpoint, "weight"> {
  /** Its identity. */
  readonly text: string;
}

/** The number of slots for this many endpoints. */
export function slotCount(endpoints: number): number {
  if (endpoints <= MOST_EXACT) return endpoints;
  let slots = MOST_EXACT;
  while (slots < endpoints * LEAST_SLOTS_EACH) slots *= 2;
  return slots;
}

/** The endpoint in each slot. The same endpoints in the same order give the same slots. */
export function slotOwners<T extends SlotOwner>(endpoints: readonly T[]): readonly T[] {
  const cells = inCells(endpoints);
  return cells.length <= MOST_EXACT || cells !== endpoints ? drawnSlots(cells) : dealtSlots(endpoints);
}

/** After this many draws per slot an endpoint takes the next free one: bounds a loop that nearly always ends sooner. */
const DRAWS_EACH = 4;

/**
 * One slot for each cell: in turn, each draws slots in its own pseudo-random order until one is free. A
 * replaced endpoint changes 2 slots on average among 5 endpoints, and 5 among 64. In address order it would be 3 and 29
 * where new endpoints get the next free address, as in many networks.
 */
function drawnSlots<T extends SlotOwner>(cells: readonly T[]): readonly T[] {
  const count = cells.length;
  const slots: (T | undefined)[] = cells.map(() => undefined);
  let copy = 0;
  for (const [index, endpoint] of cells.entries()) {
    copy = cells[index - 1] === endpoint ? copy + 1 : 0;
    let draw = hashOf(copy === 0 ? endpoint.text : `${endpoint.text} ${copy}`);
    let slot = scattered(draw) % count;
    for (let left = DRAWS_EACH * count; slots[slot] !== undefined; left -= 1) {
      draw = (draw + GOLDEN_RATIO) | 0;
      slot = (left > 0 ? scattered(draw) : slot + 1) % count;
    }
    slots[slot] = endpoint;
  }
  return slots as T[]; // each endpoint has filled one
}

/** Repeatedly added modulo 2^32, it visits every value before it repeats one. */
const GOLDEN_RATIO = 0x9e37_79b9;

/** FNV-1a: computed for every endpoint of every change, where a cryptographic digest would dominate the time. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash;
}

/** Maps close numbers to unrelated ones (the final mix of MurmurHash3). */
function scattered(number: number): number {
  let mixed = Math.imul(number ^ (number >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) & 0x7fff_ffff;
}

/**
 * The endpoints take turns, each taking the next free slot in its own order (as in Maglev, Eisenbud et al. 2016, §3.4).
 * Their numbers of slots differ by at most one, and an endpoint that comes or goes leaves most of the others' slots alone.
 */
function dealtSlots<T extends SlotOwner>(endpoints: readonly T[]): readonly T[] {
  const count = slotCount(endpoints.length);
  const orders = endpoints.map(({ text }) => orderOf(text, count));
  const slots: (T | undefined)[] = Array.from({ length: count });
  for (let taken = 0; ; ) {
    for (const [index, order] of orders.entries()) {
      while (slots[order.next] !== undefined) order.next = (order.next + order.step) & (count - 1);
      slots[order.next] = endpoints[index];
      taken += 1;
      if (taken === count) return slots.filter((owner) => owner !== undefined);
    }
  }
}

/** An endpoint's first slot and its step: an odd step reaches every slot of a power of two. */
function orderOf(text: string, count: number): { next: number; readonly step: number } {
  const digest = hash("sha256", text, "buffer");
  return { next: digest.readUInt32LE(0) & (count - 1), step: (digest.readUInt32LE(4) | 1) & (count - 1) };
}
