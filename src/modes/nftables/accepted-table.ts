/**
 * Commits a whole table as far as the kernel accepts it. What a rejected service port has in the kernel stays there, also
 * that of an earlier process, until a comparison of everything is accepted with that port.
 */

import type { SyncFailure, SyncInput } from "../../contract/backend.ts";
import { NftError, type NftTableContent } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { bisect } from "../shared/bisect.ts";
import type { RefusedPorts } from "../shared/refused-ports.ts";
import type { TransactionDraft } from "./draft.ts";
import { ownerIn } from "./names.ts";
import { type InstalledPort, NOTHING_INSTALLED } from "./port-objects.ts";
import { hasOurShape, type ReconcileOptions, reconcile, stateOf, type WantedTable } from "./reconcile.ts";
import type { SharedElement, StaticPlan } from "./table-plan.ts";
import type { TableState } from "./table-state.ts";

/** The search gives up after this many rejected service ports. */
const MAX_OFFENDERS = 64;

interface AcceptedOptions extends ReconcileOptions, Pick<SyncInput, "services"> {
  /** What this process had installed before. */
  readonly before: TableState;
  /** Service ports that were rejected before; afterwards exactly those that are rejected now. */
  readonly refused: RefusedPorts;
  readonly read: () => Promise<NftTableContent | undefined>;
  readonly commit: (draft: TransactionDraft, generation: number | undefined) => Promise<void>;
}

/** Whether leaving out one part, or retrying, can help after this error. */
export function isAttributable(error: unknown): error is NftError {
  return error instanceof NftError && error.code !== "denied" && error.code !== "conflict";
}

/** A draft of the whole table, and the state of the table once the kernel has accepted it. */
interface Attempt {
  readonly draft: TransactionDraft;
  readonly state: TableState;
  /** Why the kernel rejected it. */
  readonly error?: NftError;
}

/**
 * Commits all service ports but those that the kernel names, or that are found by trying halves if it names none.
 *
 * @param first a rejected attempt. @param content with all elements; undefined if there is no table.
 * @returns the state of the table. Rejects with an error that no service port can cause, and after {@link MAX_OFFENDERS}
 * rejected ports, which it then adds to `refused`.
 */
export async function commitAccepted(
  first: Attempt,
  content: NftTableContent | undefined,
  wanted: WantedTable,
  { services, before, refused, read, commit, ...options }: AcceptedOptions,
): Promise<TableState> {
  const plan = first.state.planStatic();
  const offenders = new Map<string, SyncFailure>();
  const refuse = (owner: string, error: NftError): void => {
    offenders.set(owner, { subject: services.get(owner)?.name.text ?? owner, reason: error.message });
    if (offenders.size >= MAX_OFFENDERS) throw error;
  };
  // After a search that gave up, ports that it did not reach come first.
  const aside = new Set(refused.size < MAX_OFFENDERS ? [] : refused.keys());
  const attempt = async (group: readonly string[], from: NftTableContent | undefined): Promise<Attempt> => {
    const without = new Set([...aside, ...offenders.keys()]).difference(new Set(group));
    const planned = await planWithout(without, from, wanted, before, plan, options);
    try {
      await commit(planned.draft, from?.generation);
      return planned;
    } catch (error) {
      if (isAttributable(error)) return { ...planned, error };
      throw error;
    }
  };
  try {
    let tried = first;
    while (tried.error !== undefined) {
      const named = ownerOf(tried);
      if (named !== undefined && !offenders.has(named)) refuse(named, tried.error);
      else {
        const owners = tried.draft.owners();
        if (owners.size === 0) throw tried.error;
        for (const owner of owners) aside.add(owner);
      }
      tried = await attempt([], content);
    }
    await bisect([...aside], {
      attempt: async (group) => {
        const next = await attempt(group, await read());
        const named = ownerOf(next);
        if (next.error !== undefined) return { reason: next.error, offender: group.find((owner) => owner === named) };
        tried = next;
        for (const owner of group) aside.delete(owner);
        return undefined;
      },
      onOffender: refuse,
    });
    refused.replace(offenders);
    return tried.state;
  } catch (error) {
    for (const [owner, failure] of offenders) refused.set(owner, failure);
    throw error;
  }
}

/** The service port whose operation the kernel names. */
function ownerOf({ draft, error }: Attempt): string | undefined {
  return error?.operation === undefined ? undefined : draft.ownerOf(error.operation);
}

/**
 * Plans the table without changes of these service ports. @param plan tells whether the table can stay: nothing is kept of
 * one that is recreated. @returns also the state after its commit.
 */
async function planWithout(
  without: ReadonlySet<string>,
  content: NftTableContent | undefined,
  wanted: WantedTable,
  before: TableState,
  plan: StaticPlan,
  options: ReconcileOptions,
): Promise<Attempt> {
  const isUsable = content !== undefined && hasOurShape(content, plan);
  const others = {
    ...wanted,
    ports: new Map([...wanted.ports].filter(([owner]) => !without.has(owner))),
    kept: isUsable ? keptOf(content, without, wanted, before) : wanted.kept,
  };
  const state = await stateOf(others, options.signal);
  return { draft: await reconcile(content, others, state, options), state };
}

/** What service ports have of the shared elements. Elements without verdict and comment do not tell their owner. */
function keptOf(
  content: NftTableContent,
  owners: ReadonlySet<string>,
  { layout, ports }: WantedTable,
  before: TableState,
): Map<string, InstalledPort> {
  const ownerAt = ownersOfElements(owners);
  const found = new Map<string, Map<string, SharedElement>>(Array.from(owners, (owner) => [owner, new Map()]));
  const bare = new Set<string>();
  for (const [set, { elements }] of content.sets) {
    if (layout.sharedSet(set) === undefined) continue;
    for (const element of elements) {
      if (isBare(element)) bare.add(idOf(set, element));
      else found.get(ownerAt(element) ?? "")?.set(idOf(set, element), { set, element });
    }
  }
  return new Map(
    Array.from(found, ([owner, elements]) => {
      const { elements: remembered } = before.installed(owner) ?? NOTHING_INSTALLED;
      for (const shared of [...remembered, ...(ports.get(owner)?.elements ?? [])]) {
        const id = idOf(shared.set, shared.element);
        if (isBare(shared.element) && bare.has(id)) elements.set(id, shared);
      }
      return [owner, { ...NOTHING_INSTALLED, elements: [...elements.values()], isFound: true }];
    }),
  );
}

/** The shortest comment limit of any release, in bytes (`release.ts`). */
const SHORTEST_COMMENT_LIMIT = 128;

/** Elements name their owner by the chain that they lead to, or in a comment, which some releases cut. */
function ownersOfElements(owners: ReadonlySet<string>): (element: NftElement) => string | undefined {
  const long = [...owners].filter((owner) => owner.length > SHORTEST_COMMENT_LIMIT);
  return ({ comment, key, verdict }) => {
    if (verdict !== undefined && "chain" in verdict && ownerIn(verdict.chain) !== undefined)
      return ownerIn(verdict.chain);
    const protocol = key.find((value) => value === "tcp" || value === "udp" || value === "sctp");
    if (comment === undefined || protocol === undefined) return undefined;
    const end = `/${String(protocol).toUpperCase()}`;
    if (owners.has(comment + end)) return comment + end;
    return long.find((owner) => owner.startsWith(comment) && owner.endsWith(end));
  };
}

/** Whether an element does not tell its owner. */
function isBare({ verdict, comment }: NftElement): boolean {
  return verdict === undefined && comment === undefined;
}

function idOf(set: string, element: NftElement): string {
  return `${set} ${elementKey(element.key)}`;
}
