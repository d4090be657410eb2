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
 * A set, and the elements that it has; or, where it was compared with the state, at which keys it has others.
 */
export interface PresentSet {
  readonly set: NftSet;
  readonly present: Iterable<NftElement>;
  readonly others?: NftSetContent["others"] | undefined;
}

/** Adds to the draft what changes the sets from what is present to what the state wants. Rejects when the signal aborts. */
export async function changeElements(
  draft: TransactionDraft,
  sets: Iterable<PresentSet>,
  state: TableState,
  { yielder, signal }: DifferenceOptions,
): Promise<void> {
  const found = new Map<string, Found>();
  for (const { set, present, others } of sets) {
    // All is as it should be.
    if (others?.size === 0) continue;
    const left = new Map<string, NftElement>();
    found.set(set.name, { set, left, others });
    for (const element of present) {
      left.set(elementKey(element.key), element);
      if (yielder.isDue()) await yielder.turn(signal);
    }
  }
  if (found.size === 0) return;
  for (const { set: name, owner, element: after } of state.wantedElements(found)) {
    const { set, left, others } = found.get(name) ?? unexpected(name);
    const key = elementKey(after.key);
    const isAsWanted = others?.has(key) === false;
    const before = others === undefined ? left.get(key) : isAsWanted ? after : others.get(key);
    left.delete(key);
    if (!sameElement(before, after)) draft.changeElement(set, { set: name, before, after }, owner || undefined);
    if (yielder.isDue()) await yielder.turn(signal);
  }
  for (const { set, left } of found.values()) {
    for (const before of left.values()) draft.changeElement(set, { set: set.name, before, after: undefined });
  }
}

interface Found extends Pick<PresentSet, "set" | "others"> {
  /** Elements that are not wanted, as far as is known by now. */
  readonly left: Map<string, NftElement>;
}

function unexpected(set: string): never {
  throw new Error(`elements of ${set} were not asked for`);
}
