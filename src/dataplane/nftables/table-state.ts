/**
 * What this process wants in its table and what it believes to be there for each service port: the difference between the
 * two is a transaction. No I/O.
 */
import { elementKey, type NftChain } from "../../kernel/nftables/ruleset.ts";
import type { SyncInput } from "../../sync/backend.ts";
import type { TransactionDraft, WantedElement } from "./draft.ts";
import { ElementOwners, type Wants } from "./element-owners.ts";
import { type Layout, sharedSetOfAny } from "./layouts.ts";
import { SETS } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import {
  type DesiredPort,
  desiredPort,
  digestOf,
  type InstalledPort,
  installedPort,
  NOTHING_INSTALLED,
  type PlanPort,
  ReplannedPort,
} from "./port-objects.ts";
import type { ElementChange, SharedElement, StaticPlan } from "./table-plan.ts";

/** The owner of elements that belong to no service port. Sorts before every key of a service port. */
const NO_OWNER = "";

const NO_NAMES: ReadonlySet<string> = new Set();

/** Services and endpoints to plan from. */
type Served = Pick<SyncInput, "services" | "endpoints">;

/** Layout, configuration and facts that all plans share. */
export interface TablePremises {
  readonly layout: Layout;
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
}

export class TableState {
  readonly #ports = new Map<string, InstalledPort>();
  readonly #owners: ElementOwners;
  readonly premises: TablePremises;
  /** Elements that belong to no service port. */
  readonly #fixed: readonly SharedElement[];
  readonly #plan: PlanPort;
  #lacking = { internal: 0, external: 0 };
  readonly #doubtful = new Set<string>();
  /** The installed plan of chains and sets of no service port, and the version of the sets in use that it was made from. */
  #static: { readonly plan: StaticPlan; readonly version: number } | undefined;

  constructor(premises: TablePremises) {
    this.premises = premises;
    const { layout, config, facts } = premises;
    this.#plan = (port, endpoints, slots) => layout.planServicePort(port, endpoints, config, facts, slots);
    this.#owners = new ElementOwners(layout.isTracked);
    const { nodePortIPs } = facts;
    const addresses = nodePortIPs.kind === "all" ? [] : nodePortIPs.ips;
    this.#fixed = addresses.map((ip) => ({ set: SETS.nodePortIPs, element: { key: [ip] } }));
    this.#owners.replace(NO_OWNER, { elements: [] }, { elements: this.#fixed });
  }

  /** The chains and sets that should belong to no service port, in view of what the ports have now. */
  planStatic(): StaticPlan {
    const { layout, config, facts } = this.premises;
    return layout.planStatic(config, facts, this.#owners.setsInUse);
  }

  /** Notes that the chains and sets of no service port are as {@link planStatic} has them. @returns that plan. */
  settleStatic(): StaticPlan {
    const plan = this.planStatic();
    this.#static = { plan, version: this.#owners.setsVersion };
    return plan;
  }

  /**
   * Adds to a draft what the changes of ports mean for the chains and sets of none. That counts as done: when the
   * transaction is refused and the ports are put back, the returned function takes it back as well.
   *
   * @param rewrites names of chains to write even if they are believed to be right.
   */
  changeStatic(draft: TransactionDraft, rewrites: ReadonlySet<string> = NO_NAMES): () => void {
    const before = this.#static;
    const isNews = before?.version !== this.#owners.setsVersion;
    if (before !== undefined && (isNews || rewrites.size > 0)) {
      changeStatic(draft, before.plan, this.settleStatic(), rewrites);
    }
    return () => {
      this.#static = before;
    };
  }

  /** Ports with a Local policy and no local endpoints. */
  get lacking(): { readonly internal: number; readonly external: number } {
    return this.#lacking;
  }

  /** What a service port has in the kernel, as far as it is known. */
  installed(owner: string): InstalledPort | undefined {
    return this.#ports.get(owner);
  }

  /** All service ports that have something in the kernel. */
  get ports(): ReadonlyMap<string, InstalledPort> {
    return this.#ports;
  }

  /** The service port that an element of a tracked set (`Layout.isTracked`) is for. */
  portWith(set: string, key: string): InstalledPort | undefined {
    const owner = this.#owners.ownerAt(set, key);
    return owner === undefined ? undefined : this.#ports.get(owner);
  }

  /** Notes that a map of clients may lead to an address that is no endpoint: see {@link takeDoubtfulMaps}. */
  doubt(map: string): void {
    this.#doubtful.add(map);
  }

  /**
   * Names of maps that may lead clients to endpoints that are gone, once what was changed is in the kernel; from now on
   * there are none.
   */
  takeDoubtfulMaps(): readonly string[] {
    if (this.#doubtful.size === 0) return [];
    const names = [...this.#doubtful];
    this.#doubtful.clear();
    return names;
  }

  /**
   * Elements that should be in some of the shared sets, with whom they are for; no key of a set twice.
   *
   * @param owners only of these; undefined: what is for none. @default all
   */
  *wantedElements(
    sets: { has(set: string): boolean },
    owners: Iterable<string | undefined> = [undefined, ...this.#ports.keys()],
  ): Iterable<WantedElement> {
    for (const owner of owners) {
      if (owner === undefined) yield* this.#effective(NO_OWNER, this.#fixed, sets);
      else yield* this.#effective(owner, this.#ports.get(owner)?.elements ?? [], sets);
    }
  }

  /** Whether {@link wantedElements} may give any. */
  wantsAnyOf(sets: { has(set: string): boolean }): boolean {
    return [...this.#owners.setsInUse].some((set) => sets.has(set));
  }

  *#effective(
    owner: string,
    elements: readonly SharedElement[],
    sets: { has(set: string): boolean },
  ): Iterable<WantedElement> {
    for (const { set, element } of elements) {
      if (!sets.has(set)) continue;
      // Of most sets no two service ports want the same: that needs no key.
      if (!this.#owners.remembers(set) || this.#owners.isEffective(owner, set, elementKey(element.key))) {
        yield { owner, set, element };
      }
    }
  }

  /** Notes what a port has from now on; undefined: nothing. @returns the shared elements that change by that. */
  put(owner: string, installed: InstalledPort | undefined): ElementChange[] {
    const before = this.#ports.get(owner) ?? NOTHING_INSTALLED;
    return this.#replace(owner, wantsOf(before), installed, wantsOf(installed ?? NOTHING_INSTALLED));
  }

  /** Plans a service port that has nothing yet, and notes that it has all of it from now on. Undefined: it is not served. */
  place(owner: string, served: Served): DesiredPort | undefined {
    const desired = this.desired(owner, served);
    if (desired === undefined) return undefined;
    // Read before it is settled: then it would be planned again.
    const wants = wantsOf(desired);
    this.#replace(owner, wantsOf(NOTHING_INSTALLED), installedPort(desired), wants);
    return desired;
  }

  /** @param before, after are planned once: both are also what the port has, and will have. */
  #replace(owner: string, before: Wants, installed: InstalledPort | undefined, after: Wants): ElementChange[] {
    const { lacksLocal: had } = this.#ports.get(owner) ?? NOTHING_INSTALLED;
    const { lacksLocal: has } = installed ?? NOTHING_INSTALLED;
    this.#lacking = {
      internal: this.#lacking.internal + Number(has.internal) - Number(had.internal),
      external: this.#lacking.external + Number(has.external) - Number(had.external),
    };
    if (installed === undefined) this.#ports.delete(owner);
    else this.#ports.set(owner, installed);
    return this.#owners.replace(owner, before, after);
  }

  /** Plans a service port as it is served. Undefined: it is not. */
  desired(owner: string, { services, endpoints }: Served): DesiredPort | undefined {
    const port = services.get(owner);
    return port && desiredPort(this.#plan, port, endpoints.get(owner) ?? []);
  }

  /**
   * Adds to a draft the step of one port from what is installed to what should be. The step counts as done: when the transaction is
   * refused, {@link TableState.put} takes it back, several in any order.
   *
   * @param rewrites names of chains and affinity sets to write even if they are believed to be right.
   */
  change(draft: TransactionDraft, owner: string, served: Served, rewrites?: ReadonlySet<string>): void {
    if (!this.changeSlots(draft, owner, served)) this.#changeTo(draft, owner, this.desired(owner, served), rewrites);
  }

  /**
   * {@link change} for a port of which nothing but endpoints changes, without planning it. @returns false when that is not known to be so:
   * nothing was done.
   */
  changeSlots(draft: TransactionDraft, owner: string, served: Served): boolean {
    const { layout, config, facts } = this.premises;
    const before = this.#ports.get(owner);
    const port = served.services.get(owner);
    const endpoints = served.endpoints.get(owner);
    if (port === undefined || endpoints === undefined || !(before instanceof ReplannedPort)) return false;
    if (before.slots === undefined || !before.isOf(port)) return false;
    const changed = layout.changedSlots?.(port, before.slots, endpoints, config, facts);
    // Where others may want the same keys these have to be compared, too.
    if (changed === undefined || changed.changes.some(({ set }) => this.#owners.remembers(set))) return false;
    this.#ports.set(owner, before.with(endpoints, changed.slots));
    for (const change of changed.changes) {
      const set = layout.sharedSet(change.set);
      if (set !== undefined) draft.changeElement(set, change, owner);
    }
    return true;
  }

  #changeTo(
    draft: TransactionDraft,
    owner: string,
    desired: DesiredPort | undefined,
    rewrites: ReadonlySet<string> = NO_NAMES,
  ): void {
    const before = this.#ports.get(owner) ?? NOTHING_INSTALLED;
    for (const set of desired?.setObjects ?? []) {
      const isRight = before.affinitySets.get(set.name) === set.timeoutSeconds && !rewrites.has(set.name);
      if (!isRight) draft.add("add-sets", { kind: "add-set", set }, owner);
    }
    for (const chain of desired?.chainObjects ?? []) {
      const known = before.chains.get(chain.name);
      if (rewrites.has(chain.name)) draft.writeChain(chain, "unknown", owner);
      else if (known === undefined) draft.writeChain(chain, "absent", owner);
      else if (known !== desired?.chains.get(chain.name)) draft.writeChain(chain, "filled", owner);
    }
    for (const name of before.chains.keys()) {
      if (desired?.chains.has(name) === true) continue;
      draft.emptyChain(name, owner);
      draft.deleteChain(name, owner);
    }
    for (const name of before.affinitySets.keys()) {
      if (desired?.affinitySets.has(name) !== true) draft.deleteSet(name, owner);
    }
    const had = wantsOf(before);
    const has = wantsOf(desired ?? NOTHING_INSTALLED);
    for (const name of this.premises.layout.clientMapsInDoubt?.(had.elements, has.elements) ?? []) {
      this.#doubtful.add(name);
    }
    for (const change of this.#replace(owner, had, desired && installedPort(desired), has)) {
      const set = sharedSetOfAny(change.set);
      if (set !== undefined) draft.changeElement(set, change, owner);
    }
  }
}

/** Reads the elements once: a replanned port plans them each time. */
function wantsOf({ elements, isFound = false }: InstalledPort): Wants {
  return { elements, isFound };
}

/**
 * Adds to a draft what changes one plan of the chains and sets that belong to no service port into another, where the first is in
 * force. Elements of sets that go are left to others.
 *
 * @param rewrites names of chains to write in any case.
 */
function changeStatic(
  draft: TransactionDraft,
  before: StaticPlan,
  after: StaticPlan,
  rewrites: ReadonlySet<string>,
): void {
  const hadSets = new Set(before.sets.map(({ name }) => name));
  const hasSets = new Set(after.sets.map(({ name }) => name));
  for (const set of after.sets) if (!hadSets.has(set.name)) draft.add("add-sets", { kind: "add-set", set });
  const hadChains = new Map(before.chains.map((chain) => [chain.name, chain]));
  const hasChains = new Set(after.chains.map(({ name }) => name));
  for (const chain of after.chains) {
    if (rewrites.has(chain.name)) draft.writeChain(chain, "unknown");
    else changeChain(draft, hadChains.get(chain.name), chain);
  }
  for (const name of hadChains.keys()) {
    if (hasChains.has(name)) continue;
    draft.emptyChain(name);
    draft.deleteChain(name);
  }
  for (const name of hadSets) if (!hasSets.has(name)) draft.deleteSharedSet(name);
}

function changeChain(draft: TransactionDraft, before: NftChain | undefined, after: NftChain): void {
  if (before === undefined) draft.writeChain(after, "absent");
  else if (digestOf(before) !== digestOf(after)) draft.writeChain(after, "filled");
}
