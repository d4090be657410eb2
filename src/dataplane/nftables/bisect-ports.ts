/** Commits changes of service ports, and finds those that the kernel refuses (`bisect.ts`): they keep what they have. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import type { SyncFailure, SyncInput } from "../../sync/backend.ts";
import { bisect, type Refusal } from "../shared/bisect.ts";
import type { RefusedPorts } from "../shared/refused-ports.ts";
import { TransactionDraft } from "./draft.ts";
import type { InstalledPort } from "./port-objects.ts";
import type { TableState } from "./table-state.ts";

interface CommitPortsOptions {
  /** Knows what is installed, and afterwards what was accepted. */
  readonly state: TableState;
  /** The wanted state. */
  readonly served: Pick<SyncInput, "services" | "endpoints">;
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** Chains and affinity sets to write even if they are believed to be right. */
  readonly rewrites?: ReadonlySet<string>;
  readonly signal: AbortSignal;
}

/** With so many refused service ports, the search gives up. */
const MAX_OFFENDERS = 64;

/** Whether a refusal may be the fault of a part, so that leaving it out, or asking the kernel again, can help. Pure. */
export function isAttributable(error: unknown): error is NftError {
  return error instanceof NftError && error.code !== "denied" && error.code !== "conflict";
}

/**
 * Brings service ports to what is wanted; those that the kernel refuses are afterwards in `refused`, and nothing else. Rejects with what is
 * not the fault of a part, and when {@link MAX_OFFENDERS} were refused.
 */
export async function bisectPorts(
  owners: readonly string[],
  { refused, ...options }: CommitPortsOptions & { readonly refused: RefusedPorts },
): Promise<void> {
  const offenders = new Map<string, SyncFailure>();
  const all = new Set(owners);
  // Ports that were refused before come last: otherwise a search that gives up would never get beyond them.
  const order = [...owners.filter((owner) => !refused.has(owner)), ...refused.owners.filter((owner) => all.has(owner))];
  try {
    await bisect(order, {
      attempt: (group) => commitPorts(group, options),
      onOffender: (owner, error: NftError) => {
        const subject = options.served.services.get(owner)?.name.text ?? owner;
        offenders.set(owner, { subject, reason: error.message });
        if (offenders.size >= MAX_OFFENDERS) throw error;
      },
    });
  } catch (error) {
    for (const [owner, { subject, reason }] of offenders) refused.refuse(owner, reason, subject);
    throw error;
  }
  refused.replace(offenders);
}

/**
 * Brings service ports to what is wanted, in one transaction. What is refused leaves the state as it was.
 *
 * @param owners their keys.
 * @param draft what else is to be done with them.
 * @returns the refusal, when a part may be at fault. Rejects with any other.
 */
export async function commitPorts(
  owners: Iterable<string>,
  { state, served, commit, rewrites, signal }: CommitPortsOptions,
  draft = new TransactionDraft(),
): Promise<Refusal<string, NftError> | undefined> {
  const before: (readonly [string, InstalledPort | undefined])[] = [];
  let undoStatic: (() => void) | undefined;
  try {
    for (const owner of owners) {
      before.push([owner, state.installed(owner)]);
      state.change(draft, owner, served, rewrites);
      if (isTurnDue()) await giveTurn(signal);
    }
    undoStatic = state.changeStatic(draft, rewrites);
    await commit(draft);
    return undefined;
  } catch (error) {
    undoStatic?.();
    for (const [owner, installed] of before) state.put(owner, installed);
    if (!isAttributable(error)) throw error;
    // It may be a port outside of the group, which is next in line for an address.
    return { reason: error, offender: error.operation === undefined ? undefined : draft.ownerOf(error.operation) };
  }
}
