/**
 * Finding out which service ports the kernel refuses: all are tried at once, and whenever that is refused, the one that the
 * kernel names is left out and the others are tried in halves.
 */

import type { Yielder } from "../../async/yielder.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import { TransactionDraft } from "./draft.ts";
import type { DesiredPort, InstalledPort } from "./port-objects.ts";
import type { TableState } from "./table-state.ts";

/** A step of one service port; undefined removes it. */
export interface PortChange {
  readonly owner: string;
  readonly desired: DesiredPort | undefined;
}

export interface PiecemealOptions {
  /** Knows what is installed, and afterwards what was accepted. */
  readonly state: TableState;
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** Chains to write even if they are believed to be right. */
  readonly rewrites?: ReadonlySet<string>;
  readonly yielder: Yielder;
  readonly signal: AbortSignal;
  readonly onRefused: (owner: string, error: NftError) => void;
}

/** How many service ports may be found guilty before it is no use to go on. */
const MAX_CULPRITS = 64;

/** Whether a refusal may be the fault of a part, so that leaving it out, or asking the kernel again, can help. Pure. */
export function isAttributable(error: unknown): error is NftError {
  return error instanceof NftError && error.code !== "denied" && error.code !== "conflict";
}

/** Rejects with what is not the fault of a part, and when more than {@link MAX_CULPRITS} were refused. */
export async function applyPiecemeal(changes: readonly PortChange[], options: PiecemealOptions): Promise<void> {
  const { state, commit, rewrites, onRefused, yielder, signal } = options;
  const groups: (readonly PortChange[])[] = [changes];
  let culprits = 0;
  for (let group = groups.pop(); group !== undefined; group = groups.pop()) {
    if (group.length === 0) continue;
    const draft = new TransactionDraft();
    const before = group.map(({ owner }): readonly [string, InstalledPort | undefined] => [
      owner,
      state.installed(owner),
    ]);
    try {
      for (const { owner, desired } of group) {
        state.change(draft, owner, desired, rewrites);
        if (yielder.isDue()) await yielder.turn(signal);
      }
      await commit(draft);
    } catch (error) {
      for (const [owner, installed] of before.reverse()) state.put(owner, installed);
      if (!isAttributable(error)) throw error;
      const named = error.operation === undefined ? undefined : draft.ownerOf(error.operation);
      const culprit = group.length === 1 ? group[0]?.owner : named;
      if (culprit !== undefined) {
        onRefused(culprit, error);
        culprits += 1;
        if (culprits >= MAX_CULPRITS) throw error;
      }
      const rest = group.filter(({ owner }) => owner !== culprit);
      const middle = Math.ceil(rest.length / 2);
      groups.push(rest.slice(middle), rest.slice(0, middle));
    }
  }
}
