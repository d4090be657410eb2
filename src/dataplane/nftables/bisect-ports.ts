/** Commits changes of service ports, and finds those that the kernel refuses (`bisect.ts`): they keep what they have. */

import type { Yielder } from "../../async/yielder.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import { bisect, type Refusal } from "../shared/bisect.ts";
import { TransactionDraft } from "./draft.ts";
import type { DesiredPort, InstalledPort } from "./port-objects.ts";
import type { TableState } from "./table-state.ts";

/** A step of one service port; undefined removes it. */
export interface PortChange {
  readonly owner: string;
  readonly desired: DesiredPort | undefined;
}

interface BisectPortsOptions {
  /** Knows what is installed, and afterwards what was accepted. */
  readonly state: TableState;
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** Chains to write even if they are believed to be right. */
  readonly rewrites?: ReadonlySet<string>;
  readonly yielder: Yielder;
  readonly signal: AbortSignal;
  readonly onRefused: (owner: string, error: NftError) => void;
}

/** So many refused service ports, and it is no use to go on. */
const MAX_OFFENDERS = 64;

/** Whether a refusal may be the fault of a part, so that leaving it out, or asking the kernel again, can help. Pure. */
export function isAttributable(error: unknown): error is NftError {
  return error instanceof NftError && error.code !== "denied" && error.code !== "conflict";
}

/** Rejects with what is not the fault of a part, and when {@link MAX_OFFENDERS} were refused. */
export async function bisectPorts(changes: readonly PortChange[], options: BisectPortsOptions): Promise<void> {
  let offenders = 0;
  await bisect(changes, {
    attempt: (group) => attempt(group, options),
    onOffender: ({ owner }, error: NftError) => {
      options.onRefused(owner, error);
      offenders += 1;
      if (offenders >= MAX_OFFENDERS) throw error;
    },
  });
}

async function attempt(
  group: readonly PortChange[],
  { state, commit, rewrites, yielder, signal }: BisectPortsOptions,
): Promise<Refusal<PortChange, NftError> | undefined> {
  const draft = new TransactionDraft();
  const before = group.map(({ owner }): readonly [string, InstalledPort | undefined] => [
    owner,
    state.installed(owner),
  ]);
  let undoStatic: (() => void) | undefined;
  try {
    for (const { owner, desired } of group) {
      state.change(draft, owner, desired, rewrites);
      if (yielder.isDue()) await yielder.turn(signal);
    }
    undoStatic = state.changeStatic(draft);
    await commit(draft);
    return undefined;
  } catch (error) {
    undoStatic?.();
    for (const [owner, installed] of before.reverse()) state.put(owner, installed);
    if (!isAttributable(error)) throw error;
    const named = error.operation === undefined ? undefined : draft.ownerOf(error.operation);
    // A port outside of the group may be next in line for an address.
    const offender = group.find(({ owner }) => owner === named);
    return {
      reason: error,
      offender: named === undefined ? undefined : (offender ?? { owner: named, desired: undefined }),
    };
  }
}
