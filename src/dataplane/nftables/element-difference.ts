/** From the elements that a shared set has to those that it should have. */

import type { Yielder } from "../../async/yielder.ts";
import { elementKey, type NftElement, type NftSet } from "../../kernel/nftables/ruleset.ts";
import type { TransactionDraft } from "./draft.ts";
import { sameElement } from "./element-changes.ts";
import type { TableState } from "./table-state.ts";

export interface DifferenceOptions {
  readonly yielder: Yielder;
  readonly signal: AbortSignal;
}

/** Adds to the draft what changes the set from what is present to what the state wants. Rejects when the signal aborts. */
export async function changeElements(
  draft: TransactionDraft,
  set: NftSet,
  present: Iterable<NftElement>,
  state: TableState,
  { yielder, signal }: DifferenceOptions,
): Promise<void> {
  const left = new Map<string, NftElement>();
  for (const element of present) {
    left.set(elementKey(element.key), element);
    if (yielder.isDue()) await yielder.turn(signal);
  }
  for (const { owner, key, element: after } of state.wantedElements(set.name)) {
    const before = left.get(key);
    left.delete(key);
    if (!sameElement(before, after)) draft.changeElement(set, { set: set.name, before, after }, owner || undefined);
    if (yielder.isDue()) await yielder.turn(signal);
  }
  for (const before of left.values()) draft.changeElement(set, { set: set.name, before, after: undefined });
}
