/** Commits changes of service ports, and finds those that the kernel rejects (`bisect.ts`); these keep what they have. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import type { SyncFailure, SyncInput } from "../../sync/backend.ts";
import { bisect, type Refusal } from "../shared/bisect.ts";
import type { RefusedPorts } from "../shared/refused-ports.ts";
import { TransactionDraft } from "./draft.ts";
import type { InstalledPort } from "./port-objects.ts";
import type { TableState } from "./table-state.ts";

interface CommitPortsOptions {
  /** What is installed; updated with what the kernel accepts. */
  readonly state: TableState;
  readonly served: Pick<SyncInput, "services" | "endpoints">;
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** Names of chains and affinity sets to write even if they are believed to be right. */
  readonly rewrites?: ReadonlySet<string>;
  readonly signal: AbortSignal;
}

/** The search gives up after this many rejected service ports. */
const MAX_OFFENDERS = 64;

/** Whether leaving out one part, or retrying, can help after this error. */
export function isAttributable(error: unknown): error is NftError {
  return error instanceof NftError && error.code !== "denied" && error.code !== "conflict";
}

/**
 * Brings service ports to their wanted state; afterwards `refused` holds exactly those that the kernel rejected. Throws
 * an error that no part can cause, and after {@link MAX_OFFENDERS} rejected ports, which it then adds to `refused`.
 */
export async function bisectPorts(
  owners: readonly string[],
  { refused, ...options }: CommitPortsOptions & { readonly refused: RefusedPorts },
): Promise<void> {
  const offenders = new Map<string, SyncFailure>();
  const all = new Set(owners);
  // Ports that were rejected before come last: otherwise a search that gives up would never get beyond them.
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
 * Brings service ports to their wanted state in one transaction. A rejected transaction leaves the state unchanged.
 *
 * @param owners keys of the service ports.
 * @param draft other changes for the same transaction.
 * @returns the refusal, if one part may have caused it. Rejects with any other error.
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
    // The offender may be a port outside of the group: the next in line for an address.
    return { reason: error, offender: error.operation === undefined ? undefined : draft.ownerOf(error.operation) };
  }
}
