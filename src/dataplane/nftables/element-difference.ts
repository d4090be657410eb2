/** From the elements that a shared set has to those that it should have. */

import type { Yielder } from "../../async/yielder.ts";
import type { NftSetContent } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement, type NftSet } from "../../kernel/nftables/ruleset.ts";
import type { TransactionDraft } from "./draft.ts";
import { sameElement } from "./element-changes.ts";
import type { TableState } from "./table-state.ts";

export interface DifferenceOptions {
  readonly yielder: Yielder;
  readonly signal: AbortSignal;
}

/**
 * A set, and the elements that it has; or, where it was compared with the state, at which keys it has others; or, where this process
 * has filled it, what with. Of the last kind the state remembers who wants what.
 */
export interface PresentSet {
  readonly set: NftSet;
  readonly present: Iterable<NftElement>;
  readonly others?: NftSetContent["others"] | undefined;
  readonly sent?: NftSetContent["sent"] | undefined;
}

/** Adds to the draft what changes the sets from what is present to what the state wants. Rejects when the signal aborts. */
export async function changeElements(
  draft: TransactionDraft,
  sets: Iterable<PresentSet>,
  state: TableState,
  { yielder, signal }: DifferenceOptions,
): Promise<void> {
  const found = new Map<string, Found>();
  for (const { set, present, others, sent } of sets) {
    // All is as it should be.
    if (others?.size === 0) continue;
    const left = new Map<string, NftElement>();
    found.set(set.name, { set, left, others, unseen: sent && new Set(sent), differing: [] });
    for (const element of present) {
      left.set(elementKey(element.key), element);
      if (yielder.isDue()) await yielder.turn(signal);
    }
  }
  if (found.size === 0) return;
  for (const { set: name, owner, element: after } of state.wantedElements(found)) {
    const { set, left, others, unseen, differing } = found.get(name) ?? unexpected(name);
    if (unseen !== undefined) {
      // Nearly all are the very objects that were sent: that needs no key.
      if (!unseen.delete(after)) differing.push({ owner, after });
      if (yielder.isDue()) await yielder.turn(signal);
      continue;
    }
    const key = elementKey(after.key);
    const isAsWanted = others?.has(key) === false;
    const before = others === undefined ? left.get(key) : isAsWanted ? after : others.get(key);
    left.delete(key);
    if (!sameElement(before, after)) draft.changeElement(set, { set: name, before, after }, owner || undefined);
    if (yielder.isDue()) await yielder.turn(signal);
  }
  for (const { set, left, unseen, differing } of found.values()) {
    for (const before of unseen ?? []) left.set(elementKey(before.key), before);
    for (const { owner, after } of differing) {
      const key = elementKey(after.key);
      const before = left.get(key);
      left.delete(key);
      if (!sameElement(before, after)) draft.changeElement(set, { set: set.name, before, after }, owner || undefined);
    }
    for (const [key, before] of left) {
      // Of what was sent for several owners, the one that is wanted has been seen.
      const after = unseen && state.wantedAt(set.name, key);
      if (!sameElement(before, after)) draft.changeElement(set, { set: set.name, before, after });
    }
  }
}

interface Found extends Pick<PresentSet, "set" | "others"> {
  /** Elements that are not wanted, as far as is known by now. */
  readonly left: Map<string, NftElement>;
  /** Of what was sent. */
  readonly unseen: Set<NftElement> | undefined;
  /** What is wanted and was not sent, or not as this object. */
  readonly differing: { readonly owner: string; readonly after: NftElement }[];
}

function unexpected(set: string): never {
  throw new Error(`elements of ${set} were not asked for`);
}
