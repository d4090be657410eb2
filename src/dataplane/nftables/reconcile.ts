/**
 * The difference between what the kernel holds and what should be there, everything considered. Affinity entries, and
 * what others have put into the table under names that are not ours, stay. No I/O.
 */
import type { NftExpectation, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftChain, NftSet } from "../../kernel/nftables/ruleset.ts";
import { type ChainPresence, TransactionDraft } from "./draft.ts";
import { changeElements, type DifferenceOptions, type PresentSet } from "./element-difference.ts";
import type { Layout } from "./layout.ts";
import { isOurChain, isOurSet } from "./layouts.ts";
import { isAffinitySet, SETS, TABLE_COMMENT } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import { chainDigest, type DesiredPort, digestOf, type InstalledPort, installedPort } from "./port-objects.ts";
import { hasOurShape } from "./table-shape.ts";
import { TableState } from "./table-state.ts";

/** What should be in the table. A service port is in `ports` or in `kept`. */
export interface WantedTable {
  readonly layout: Layout;
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
  readonly ports: ReadonlyMap<string, DesiredPort>;
  /** Service ports that stay as they are in the kernel for now. */
  readonly kept: ReadonlyMap<string, InstalledPort>;
}

export interface Reconciliation {
  readonly draft: TransactionDraft;
  /** What is in the kernel once the draft is committed. */
  readonly state: TableState;
}

export interface ReconcileOptions extends DifferenceOptions {
  /** Names whose deletion is put off: they are emptied only. */
  readonly deferred: { has(name: string): boolean };
}

/** What is in the kernel when all that is wanted is. Rejects when the signal aborts. */
export async function stateOf(
  { layout, config, facts, ports, kept }: WantedTable,
  { yielder, signal }: DifferenceOptions,
): Promise<TableState> {
  const state = new TableState({ layout, config, facts, fixed: fixedElements(facts) });
  for (const [owner, installed] of kept) state.put(owner, installed);
  for (const [owner, desired] of ports) {
    state.put(owner, installedPort(desired));
    if (yielder.isDue()) await yielder.turn(signal);
  }
  state.settleStatic();
  return state;
}

/** What {@link reconcile} can do with sets that were only compared. */
export function expectationOf(state: TableState): NftExpectation {
  const { sets } = state.planStatic();
  const comparable = sets.filter(({ hasRanges, timeoutSeconds }) => hasRanges !== true && timeoutSeconds === undefined);
  return {
    sets: new Map(comparable.map((set) => [set.name, set])),
    elements: (names) => state.wantedElements(names),
  };
}

/**
 * @param content undefined when there is no table.
 * @param state of what is wanted, which sets may have been compared with; to be used no more. Rejects when the signal aborts.
 */
export async function reconcile(
  content: NftTableContent | undefined,
  { ports, kept }: WantedTable,
  state: TableState,
  { deferred, yielder, signal }: ReconcileOptions,
): Promise<Reconciliation> {
  const draft = new TransactionDraft();
  const plan = state.settleStatic();
  const usable = content !== undefined && hasOurShape(content, plan) ? content : undefined;
  if (content !== undefined && usable === undefined) draft.add("table", { kind: "delete-table" });
  if (usable === undefined) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });

  const chains = new Set<string>();
  const sets = new Set<string>();
  for (const set of plan.sets) {
    sets.add(set.name);
    if (!usable?.sets.has(set.name)) draft.add("add-sets", { kind: "add-set", set });
  }
  for (const chain of plan.chains) {
    chains.add(chain.name);
    const { rules: _rules, ...head } = chain;
    if (hasOtherPolicy(usable, chain)) draft.add("add-chains", { kind: "add-chain", chain: head });
    const presence = presenceOf(usable, chain.name, digestOf(chain));
    if (presence !== undefined) draft.writeChain(chain, presence);
  }
  for (const installed of kept.values()) {
    for (const name of installed.chains.keys()) chains.add(name);
    for (const name of installed.affinitySets.keys()) sets.add(name);
  }
  for (const [owner, desired] of ports) {
    for (const set of desired.setObjects) {
      sets.add(set.name);
      if (usable?.sets.get(set.name)?.timeoutSeconds !== set.timeoutSeconds) {
        draft.add("add-sets", { kind: "add-set", set }, owner);
      }
    }
    for (const chain of desired.chainObjects) {
      chains.add(chain.name);
      const presence = presenceOf(usable, chain.name, desired.chains.get(chain.name));
      if (presence !== undefined) draft.writeChain(chain, presence, owner, desired.chains.get(chain.name));
    }
    if (yielder.isDue()) await yielder.turn(signal);
  }
  const filled: PresentSet[] = [];
  const empty = new Map<string, NftSet>();
  for (const set of plan.sets) {
    if (set.timeoutSeconds !== undefined) continue;
    const { elements: present = [], others, sent } = usable?.sets.get(set.name) ?? {};
    if (present.length > 0 || others !== undefined || sent !== undefined) filled.push({ set, present, others, sent });
    else empty.set(set.name, set);
  }
  await changeElements(draft, filled, state, { yielder, signal });
  const missing = state.countWanted(empty);
  // Until the draft is committed nothing else changes the state. To find that there are none would be to plan every service.
  if (missing > 0) draft.fillSets(empty, () => state.wantedElements(empty), missing);
  for (const [name, { ruleDigests }] of usable?.chains ?? []) {
    if (!isOurChain(name) || chains.has(name)) continue;
    if (ruleDigests.length > 0) draft.emptyChain(name);
    if (!deferred.has(name)) draft.deleteChain(name);
  }
  for (const name of usable?.sets.keys() ?? []) {
    if (!isOurSet(name) || sets.has(name) || deferred.has(name)) continue;
    if (isAffinitySet(name)) draft.deleteSet(name);
    else draft.deleteSharedSet(name);
  }
  return { draft, state };
}

/** How a chain must be written; undefined when the kernel has it as it should be. */
function presenceOf(
  content: NftTableContent | undefined,
  name: string,
  digest: string | undefined,
): ChainPresence | undefined {
  const present = content?.chains.get(name);
  if (present === undefined) return "absent";
  if (chainDigest(present.ruleDigests) === digest) return undefined;
  return present.ruleDigests.length === 0 ? "empty" : "filled";
}

function fixedElements({ nodePortIPs }: PlanFacts) {
  if (nodePortIPs.kind === "all") return [];
  return nodePortIPs.ips.map((ip) => ({ set: SETS.nodePortIPs, element: { key: [ip] } }));
}

/** A base chain that drops what its rules leave, or the other way round: that can be changed where it is. */
function hasOtherPolicy(content: NftTableContent | undefined, { name, hook }: NftChain): boolean {
  const present = content?.chains.get(name)?.hook;
  return present !== undefined && present !== "other" && present.policy !== hook?.policy;
}
