/**
 * What this process wants in its table and what it believes to be there: the difference between the two, for some service
 * ports or for everything, is a transaction. No I/O.
 */
import type { NftTableContent } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement, type NftHook, type NftSet } from "../../kernel/nftables/ruleset.ts";
import { TransactionDraft } from "./draft.ts";
import { type ElementChange, ElementClaims, sameElement } from "./element-claims.ts";
import { isAffinitySet, isServiceChain, SETS, TABLE_COMMENT } from "./names.ts";
import type { PlanFacts } from "./plan-options.ts";
import type { SharedElement } from "./plan-service-port.ts";
import { SHARED_SETS, type StaticPlan } from "./plan-static.ts";
import {
  chainDigest,
  type DesiredPort,
  digestOf,
  type InstalledPort,
  installedPort,
  NOTHING_INSTALLED,
} from "./port-objects.ts";

/** Claims the elements that belong to no service port. Sorts before every key of a service port. */
const NO_OWNER = "";

const SETS_BY_NAME: ReadonlyMap<string, NftSet> = new Map(SHARED_SETS.map((set) => [set.name, set]));

export class TableState {
  readonly #ports = new Map<string, InstalledPort>();
  readonly #claims = new ElementClaims();
  #staticElements: readonly SharedElement[] = [];
  #lacking = { internal: 0, external: 0 };

  /** Ports with a Local policy and no local endpoints. */
  get lacking(): { readonly internal: number; readonly external: number } {
    return this.#lacking;
  }

  /** Chains of a service port as far as they are known to be in the kernel. */
  installed(owner: string): InstalledPort | undefined {
    return this.#ports.get(owner);
  }

  /** Service ports that have something in the kernel. */
  owners(): Iterable<string> {
    return this.#ports.keys();
  }

  /** Notes what a port shall have; the claims on shared elements change at once. @returns the elements to change. */
  #claim(owner: string, desired: DesiredPort | undefined): ElementChange[] {
    const before = this.#ports.get(owner) ?? NOTHING_INSTALLED;
    const changes = this.#claims.replace(owner, before.elements, desired?.elements ?? []);
    this.#lacking = {
      internal: this.#lacking.internal + Number(desired?.lacksInternal ?? false) - Number(before.lacksInternal),
      external: this.#lacking.external + Number(desired?.lacksExternal ?? false) - Number(before.lacksExternal),
    };
    if (desired === undefined) this.#ports.delete(owner);
    else this.#ports.set(owner, installedPort(desired));
    return changes;
  }

  /**
   * Adds to a draft the step of one port from what is installed to what shall be; undefined removes it.
   *
   * @param rewrites chains to write even if they are believed to be right.
   */
  change(
    draft: TransactionDraft,
    owner: string,
    desired: DesiredPort | undefined,
    rewrites?: ReadonlySet<string>,
  ): void {
    const before = this.#ports.get(owner) ?? NOTHING_INSTALLED;
    for (const set of desired?.setObjects ?? []) {
      if (before.affinitySets.get(set.name) !== set.timeoutSeconds)
        draft.add("add-sets", { kind: "add-set", set }, owner);
    }
    for (const chain of desired?.chainObjects ?? []) {
      const known = before.chains.get(chain.name);
      if (known !== desired?.chains.get(chain.name) || rewrites?.has(chain.name) === true) {
        draft.writeChain(chain, known !== undefined, owner);
      }
    }
    for (const name of before.chains.keys()) if (desired?.chains.has(name) !== true) draft.removeChain(name, owner);
    for (const name of before.affinitySets.keys()) {
      if (desired?.affinitySets.has(name) !== true) draft.add("delete-sets", { kind: "delete-set", set: name }, owner);
    }
    addElementChanges(draft, this.#claim(owner, desired), owner);
  }

  /**
   * The difference between what the kernel holds and what shall be there, everything considered. Affinity entries and
   * whatever others have put into the table under names that are not ours stay.
   *
   * @param content undefined when there is no table.
   */
  reconcile(
    content: NftTableContent | undefined,
    plan: StaticPlan,
    facts: PlanFacts,
    ports: ReadonlyMap<string, DesiredPort>,
  ): TransactionDraft {
    const draft = new TransactionDraft();
    const usable = content !== undefined && hasOurShape(content, plan) ? content : undefined;
    if (content !== undefined && usable === undefined) draft.add("table", { kind: "delete-table" });
    if (usable === undefined) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
    this.#claimEverything(facts, ports);

    const wantedSets = new Map(plan.sets.map((set) => [set.name, set]));
    for (const set of plan.sets) if (!usable?.sets.has(set.name)) draft.add("add-sets", { kind: "add-set", set });
    const wantedChains = new Set<string>();
    for (const chain of plan.chains) {
      wantedChains.add(chain.name);
      const present = usable?.chains.get(chain.name);
      if (present === undefined || chainDigest(present.ruleDigests) !== digestOf(chain)) {
        draft.writeChain(chain, present !== undefined);
      }
    }
    const wantedAffinity = new Set<string>();
    for (const [owner, desired] of ports) {
      for (const set of desired.setObjects) {
        wantedAffinity.add(set.name);
        const present = usable?.sets.get(set.name);
        if (present?.timeoutSeconds !== set.timeoutSeconds) draft.add("add-sets", { kind: "add-set", set }, owner);
      }
      for (const chain of desired.chainObjects) {
        wantedChains.add(chain.name);
        const present = usable?.chains.get(chain.name);
        if (present === undefined || chainDigest(present.ruleDigests) !== desired.chains.get(chain.name)) {
          draft.writeChain(chain, present !== undefined, owner);
        }
      }
    }
    for (const set of plan.sets) {
      const changes = elementDifference(set, usable?.sets.get(set.name)?.elements ?? [], this.#claims.wanted(set.name));
      draft.changeElements(set, changes);
    }
    for (const name of usable?.chains.keys() ?? []) {
      if (isServiceChain(name) && !wantedChains.has(name)) draft.removeChain(name);
    }
    for (const name of usable?.sets.keys() ?? []) {
      const isOurs = isAffinitySet(name) ? !wantedAffinity.has(name) : SETS_BY_NAME.has(name) && !wantedSets.has(name);
      if (isOurs) draft.add("delete-sets", { kind: "delete-set", set: name });
    }
    return draft;
  }

  #claimEverything(facts: PlanFacts, ports: ReadonlyMap<string, DesiredPort>): void {
    const { nodePortIPs } = facts;
    const fixed: SharedElement[] =
      nodePortIPs.kind === "all"
        ? []
        : nodePortIPs.ips.map((ip) => ({ set: SETS.nodePortIPs, element: { key: [ip] } }));
    this.#claims.replace(NO_OWNER, this.#staticElements, fixed);
    this.#staticElements = fixed;
    for (const owner of [...this.#ports.keys()]) if (!ports.has(owner)) this.#claim(owner, undefined);
    for (const [owner, desired] of ports) this.#claim(owner, desired);
  }
}

/** A table whose fixed parts are of another kind (an old version's, somebody else's) cannot be changed into ours. */
function hasOurShape(content: NftTableContent, plan: StaticPlan): boolean {
  for (const { name, hook } of plan.chains) {
    const present = content.chains.get(name);
    if (present !== undefined && !sameHook(present.hook, hook)) return false;
  }
  for (const set of SHARED_SETS) {
    const present = content.sets.get(set.name);
    if (present === undefined) continue;
    if (present.isMap !== set.isMap || present.key?.join() !== set.key.join()) return false;
  }
  return true;
}

function sameHook(a: NftHook | undefined, b: NftHook | undefined): boolean {
  return a?.type === b?.type && a?.hook === b?.hook && a?.priority === b?.priority;
}

function elementDifference(set: NftSet, present: readonly NftElement[], wanted: Iterable<NftElement>): ElementChange[] {
  const left = new Map(present.map((element) => [elementKey(element.key), element]));
  const changes: ElementChange[] = [];
  for (const after of wanted) {
    const key = elementKey(after.key);
    const before = left.get(key);
    left.delete(key);
    if (!sameElement(before, after)) changes.push({ set: set.name, before, after });
  }
  for (const before of left.values()) changes.push({ set: set.name, before, after: undefined });
  return changes;
}

function addElementChanges(draft: TransactionDraft, changes: readonly ElementChange[], owner: string): void {
  const bySet = Map.groupBy(changes, ({ set }) => set);
  for (const [name, list] of bySet) {
    const set = SETS_BY_NAME.get(name);
    if (set !== undefined) draft.changeElements(set, list, owner);
  }
}
