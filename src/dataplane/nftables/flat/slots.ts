/**
 * Which endpoint answers in which slot of a frontend: a packet draws a slot, each as likely as any other. A frontend with few
 * endpoints has one slot for each, so shares are exact. One with many has a table of a power of two: at least
 * {@link LEAST_SLOTS_EACH} for each endpoint, so that no share differs by more than 1/{@link LEAST_SLOTS_EACH} of it. In both few
 * slots change with an endpoint: each of them is an element that is deleted and one that is added.
 */
import { hash } from "node:crypto";
import type { NftTarget } from "../../../kernel/nftables/ruleset.ts";

/** With more endpoints the slots are those of a table. */
export const MOST_EXACT = 64;
/** Slots for each endpoint of a table, at least. */
export const LEAST_SLOTS_EACH = 8;

/** An endpoint as far as it has slots. */
interface SlotOwner extends NftTarget {
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

/** The endpoint in each slot. The same endpoints in the same order give the same slots. Pure. */
export function slotOwners<T extends SlotOwner>(endpoints: readonly T[]): readonly T[] {
  return endpoints.length <= MOST_EXACT ? drawnSlots(endpoints) : dealtSlots(endpoints);
}

/** After so many draws for each slot an endpoint takes the next free one: the end of a loop that ends by itself nearly always. */
const DRAWS_EACH = 4;

/**
 * A slot for each endpoint: one after the other they draw slots, each in an order of its own, until one is free. Of 5 endpoints one that
 * replaces another changes 2 slots on average, of 64 it changes 5. In the order of the addresses it would be 3 and 29 where new
 * endpoints get the next free address, as many networks do.
 */
function drawnSlots<T extends SlotOwner>(endpoints: readonly T[]): readonly T[] {
  const count = endpoints.length;
  const slots: (T | undefined)[] = endpoints.map(() => undefined);
  for (const endpoint of endpoints) {
    let draw = hashOf(endpoint.text);
    let slot = scattered(draw) % count;
    for (let left = DRAWS_EACH * count; slots[slot] !== undefined; left -= 1) {
      draw = (draw + GOLDEN_RATIO) | 0;
      slot = (left > 0 ? scattered(draw) : slot + 1) % count;
    }
    slots[slot] = endpoint;
  }
  return slots as T[]; // each endpoint has filled one
}

/** Added again and again it comes back to none of its multiples for long. */
const GOLDEN_RATIO = 0x9e37_79b9;

/** FNV-1a: made for every endpoint of every change, where a digest would take longer than all else. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash;
}

/** Numbers that differ little give numbers that have nothing in common (the last step of MurmurHash3). */
function scattered(number: number): number {
  let mixed = Math.imul(number ^ (number >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) & 0x7fff_ffff;
}

/**
 * The endpoints choose in turns, each the next free slot in an order of its own (as Maglev does, Eisenbud et al. 2016, §3.4):
 * no two differ by more than one slot, and who comes or goes leaves most of the others' choices as they were.
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

/** Where an endpoint begins, and how far it goes each time: an odd step reaches every slot of a power of two. */
function orderOf(text: string, count: number): { next: number; readonly step: number } {
  const digest = hash("sha256", text, "buffer");
  return { next: digest.readUInt32LE(0) & (count - 1), step: (digest.readUInt32LE(4) | 1) & (count - 1) };
}
