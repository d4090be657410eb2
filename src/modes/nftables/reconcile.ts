/**
 * The full difference between the table in the kernel and the wanted one. Affinity entries, and objects of other
 * programs under names that are not ours, stay. No I/O.
 */
import { sortedKeys } from "../../async/sorted-keys.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { SyncInput } from "../../contract/backend.ts";
import type {
  Nftables,
  NftChainContent,
  NftExpectation,
  NftSetContent,
  NftTableContent,
} from "../../kernel/nftables/nftables.ts";
import {
  elementKey,
  type NftChain,
  type NftElement,
  type NftHook,
  type NftSet,
  targetsOf,
} from "../../kernel/nftables/ruleset.ts";
import { type ChainPresence, sameElement, TransactionDraft } from "./draft.ts";
import { isOurChain, isOurSet, sharedSetOfAny } from "./layouts.ts";
import { protocolCounted } from "./localhost-node-ports.ts";
import { AFFINITY_SET, isAffinitySet, isServiceChain, ownerIn, TABLE_COMMENT } from "./names.ts";
import { chainDigest, type DesiredPort, digestOf, type InstalledPort, installedPort } from "./port-objects.ts";
import type { StaticPlan } from "./table-plan.ts";
import { type TablePremises, TableState } from "./table-state.ts";

/** The wanted table. A service port is in `ports` or in `kept`. */
export interface WantedTable extends TablePremises {
  readonly ports: ReadonlyMap<string, DesiredPort>;
  /** By key: shared elements of service ports that stay as they are in the kernel, as do chains and sets named after them. */
  readonly kept: ReadonlyMap<string, InstalledPort>;
}

export interface ReconcileOptions {
  /** Names of chains and sets whose deletion is deferred: chains are only emptied. */
  readonly deferred: { has(name: string): boolean };
  readonly signal: AbortSignal;
}

/** Plans all Services. @returns the plan, and the state of the table after its commit. Rejects when the signal aborts. */
export async function planWhole(
  premises: TablePremises,
  served: Pick<SyncInput, "services" | "endpoints">,
  signal: AbortSignal,
): Promise<{ readonly wanted: WantedTable; readonly state: TableState }> {
  const state = new TableState(premises);
  const ports = new Map<string, DesiredPort>();
  for (const key of await sortedKeys(served.services, signal)) {
    const desired = state.place(key, served);
    if (desired !== undefined) ports.set(key, desired);
    if (isTurnDue()) await giveTurn(signal);
  }
  state.settleStatic();
  return { wanted: { ...premises, ports, kept: new Map() }, state };
}

/** The state of the table once everything wanted is committed. Rejects when the signal aborts. */
export async function stateOf({ ports, kept, ...premises }: WantedTable, signal: AbortSignal): Promise<TableState> {
  const state = new TableState(premises);
  for (const [owner, installed] of kept) state.put(owner, installed);
  for (const [owner, desired] of ports) {
    state.put(owner, installedPort(desired));
    if (isTurnDue()) await giveTurn(signal);
  }
  return state;
}

/** The sets that {@link reconcile} can compare element by element, without a listing. */
export function expectationOf(state: TableState): NftExpectation {
  const { sets } = state.planStatic();
  const comparable = sets.filter(({ timeoutSeconds }) => timeoutSeconds === undefined);
  return {
    sets: new Map(comparable.map((set) => [set.name, set])),
    elements: (names) => state.wantedElements(names),
  };
}

/**
 * Makes the draft that turns the table into the wanted one. Rejects when the signal aborts.
 *
 * @param content undefined if there is no table.
 * @param state the wanted state, with which sets may have been compared; it is true once the draft is committed.
 */
export async function reconcile(
  content: NftTableContent | undefined,
  { layout, ports, kept }: WantedTable,
  state: TableState,
  { deferred, signal }: ReconcileOptions,
): Promise<TransactionDraft> {
  const draft = new TransactionDraft();
  const plan = state.settleStatic();
  const usable = content !== undefined && hasOurShape(content, plan) ? content : undefined;
  if (content !== undefined && usable === undefined) draft.add("table", { kind: "delete-table" });
  if (usable === undefined) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });

  const chains = new Set<string>();
  const sets = new Set<string>();
  const write = (chain: NftChain, digest: string, owner?: string): void => {
    chains.add(chain.name);
    const presence = presenceOf(usable, chain, digest);
    if (presence !== undefined) draft.writeChain(chain, presence, owner, digest);
  };
  for (const counter of plan.counters)
    if (!usable?.counters.has(counter)) draft.add("add-counters", { kind: "add-counter", counter });
  for (const counter of usable?.counters.keys() ?? []) {
    if (protocolCounted(counter) === undefined || plan.counters.includes(counter)) continue;
    draft.add("delete-counters", { kind: "delete-counter", counter });
  }
  for (const set of plan.sets) {
    sets.add(set.name);
    // Adding a set again cancels its deferred deletion.
    if (!usable?.sets.has(set.name) || deferred.has(set.name)) draft.add("add-sets", { kind: "add-set", set });
  }
  for (const chain of plan.chains) {
    const { rules: _rules, ...head } = chain;
    if (hasOtherPolicy(usable, chain))
      draft.add("add-chains", { kind: "add-chain", chain: { ...head, isThere: true } });
    write(chain, digestOf(chain));
  }
  // What another layout has for a service port is deleted with its sets.
  const isKept = (name: string) =>
    layout.hasPortChains === true && kept.has(ownerIn(name) ?? "") && !deferred.has(name);
  for (const [owner, desired] of ports) {
    for (const set of desired.setObjects) {
      sets.add(set.name);
      if (usable?.sets.get(set.name)?.timeoutSeconds !== set.timeoutSeconds || deferred.has(set.name)) {
        draft.add("add-sets", { kind: "add-set", set }, owner);
      }
    }
    for (const chain of desired.chainObjects) write(chain, desired.chains.get(chain.name) ?? digestOf(chain), owner);
    if (isTurnDue()) await giveTurn(signal);
  }
  const filled: PresentSet[] = [];
  const empty = new Map<string, NftSet>();
  for (const set of plan.sets) {
    if (set.timeoutSeconds !== undefined) continue;
    const { elements: present = [], others } = usable?.sets.get(set.name) ?? {};
    if (present.length > 0 || others !== undefined) filled.push({ set, present, others });
    else empty.set(set.name, set);
  }
  await changeElements(draft, filled, state, signal);
  // Nothing else changes the state until the commit. The check saves planning every Service just to find no elements.
  if (state.wantsAnyOf(empty)) draft.fillSets(empty, () => state.wantedElements(empty));
  for (const [name, { ruleDigests }] of usable?.chains ?? []) {
    // A chain that another program renamed still has our rules.
    const isOurs = isOurChain(name) || ruleDigests.some((digest) => digest !== undefined);
    if (!isOurs || chains.has(name) || isKept(name)) continue;
    if (ruleDigests.length > 0) draft.emptyChain(name);
    if (!deferred.has(name)) draft.deleteChain(name);
  }
  for (const name of usable?.sets.keys() ?? []) {
    if (!isOurSet(name) || sets.has(name) || deferred.has(name) || isKept(name)) continue;
    if (isAffinitySet(name)) draft.deleteSet(name);
    else draft.deleteSharedSet(name);
  }
  return draft;
}

/**
 * How a chain must be written; undefined if it is right in the kernel. A rule keeps its target chain when that is
 * renamed: after a rename by another program, a rule of ours may no longer lead to the chain that it should. Targets of
 * anonymous maps are not read: the chain of such a map also has a rule to each of its targets.
 */
function presenceOf(content: NftTableContent | undefined, chain: NftChain, digest: string): ChainPresence | undefined {
  const present = content?.chains.get(chain.name);
  if (present === undefined) return "absent";
  const { ruleDigests, targets = [] } = present;
  if (ruleDigests.length === 0) return digest === "" ? undefined : "empty";
  const isRight = chainDigest(ruleDigests) === digest && targets.join() === targetsOf(chain).join();
  return isRight ? undefined : "filled";
}

/** Base chains of other programs in our table: packets pass them, and they are left alone. */
export function foreignBaseChains({ chains }: NftTableContent): string[] {
  return Array.from(chains).flatMap(([name, { hook, ruleDigests }]) =>
    hook !== undefined && !isOurChain(name) && ruleDigests.every((digest) => digest === undefined) ? [name] : [],
  );
}

/** Whether a base chain has another policy than it should: a policy can be changed in place. */
function hasOtherPolicy(content: NftTableContent | undefined, { name, hook }: NftChain): boolean {
  const present = content?.chains.get(name)?.hook;
  return present !== undefined && present !== "other" && present.policy !== hook?.policy;
}

/**
 * A set with its elements, or, if it was compared with the state, with the keys at which they differ.
 */
interface PresentSet {
  readonly set: NftSet;
  readonly present: Iterable<NftElement>;
  readonly others?: NftSetContent["others"] | undefined;
}

/** Adds the changes from the present to the wanted elements to the draft. Rejects when the signal aborts. */
async function changeElements(
  draft: TransactionDraft,
  sets: Iterable<PresentSet>,
  state: TableState,
  signal: AbortSignal,
): Promise<void> {
  const found = new Map<string, Found>();
  for (const { set, present, others } of sets) {
    if (others?.size === 0) continue;
    const left = new Map<string, NftElement>();
    found.set(set.name, { set, left, others });
    for (const element of present) {
      left.set(elementKey(element.key), element);
      if (isTurnDue()) await giveTurn(signal);
    }
  }
  if (found.size === 0) return;
  for (const { set: name, owner, element: after } of state.wantedElements(found)) {
    const asked = found.get(name);
    if (asked === undefined) throw new Error(`elements of ${name} were not requested`);
    const { set, left, others } = asked;
    const key = elementKey(after.key);
    const isAsWanted = others?.has(key) === false;
    const before = others === undefined ? left.get(key) : isAsWanted ? after : others.get(key);
    left.delete(key);
    if (!sameElement(before, after)) draft.changeElement(set, { set: name, before, after }, owner || undefined);
    if (isTurnDue()) await giveTurn(signal);
  }
  for (const { set, left } of found.values()) {
    for (const before of left.values()) draft.changeElement(set, { set: set.name, before, after: undefined });
  }
}

interface Found extends Pick<PresentSet, "set" | "others"> {
  /** Present elements that no wanted element has matched so far. */
  readonly left: Map<string, NftElement>;
}

/**
 * Adds to an empty draft the repair of the shared sets among `damaged`: reads their elements, and changes those that
 * differ.
 *
 * @param damaged names of chains and sets; only shared sets are repaired.
 * @param options `state`: as committed last.
 * @returns false if a set is not what it should be: only a full comparison can help then.
 */
export async function repairSets(
  draft: TransactionDraft,
  damaged: ReadonlySet<string>,
  { nft, state, signal }: { readonly nft: Nftables; readonly state: TableState; readonly signal: AbortSignal },
): Promise<boolean> {
  let sets: ReadonlyMap<string, NftSet> | undefined;
  const found: PresentSet[] = [];
  for (const name of damaged) {
    if (sharedSetOfAny(name) === undefined) continue;
    sets ??= new Map(state.planStatic().sets.map((one) => [one.name, one]));
    const set = sets.get(name);
    const present = set && (await nft.readElements(set));
    if (set === undefined || present === undefined) return false;
    if (set.timeoutSeconds !== undefined) {
      // Entries made by packets stay if they lead to an endpoint of ours.
      state.doubtfulMaps.add(name);
      continue;
    }
    found.push({ set, present });
  }
  await changeElements(draft, found, state, signal);
  return true;
}

/**
 * False for a table with flags, or with chains or sets of another kind under our names (from an old version or another
 * program): a hook, type, key or flag cannot be changed. Policies, dormancy and the timeouts of sets can be changed in
 * place, and do not count. A table of the other layout has our shape.
 */
export function hasOurShape(content: NftTableContent, plan: StaticPlan): boolean {
  if (content.hasOtherFlags) return false;
  for (const { name, hook } of plan.chains) {
    const present = content.chains.get(name);
    if (present !== undefined && !sameHook(present.hook, hook)) return false;
  }
  for (const { name, hasCounters } of plan.sets) {
    const present = content.sets.get(name);
    if (present !== undefined && present.hasCounters !== hasCounters) return false;
  }
  for (const [name, { hook }] of content.chains) if (hook !== undefined && isServiceChain(name)) return false;
  for (const [name, present] of content.sets) {
    const ours = isAffinitySet(name) ? AFFINITY_SET : sharedSetOfAny(name);
    if (ours !== undefined && !isOfKind(present, ours)) return false;
  }
  return true;
}

function sameHook(a: NftChainContent["hook"], b: NftHook | undefined): boolean {
  if (a === undefined || a === "other" || b === undefined) return a === b;
  return a.type === b.type && a.hook === b.hook && a.priority === b.priority;
}

/** The length of a timeout can be changed; whether there is one cannot. */
function isOfKind(present: NftSetContent, set: Omit<NftSet, "name">): boolean {
  const isDynamic = present.timeoutSeconds !== undefined;
  return (
    present.isMap === set.isMap &&
    present.hasTargets === set.hasTargets &&
    present.key?.join() === set.key.join() &&
    isDynamic === (set.timeoutSeconds !== undefined)
  );
}
