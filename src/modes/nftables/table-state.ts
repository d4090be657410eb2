/**
 * The wanted state of the table, and what each service port is believed to have in the kernel: the difference between
 * the two becomes a transaction. No I/O.
 */

import type { SyncInput } from "../../contract/backend.ts";
import { elementKey, type NftChain } from "../../kernel/nftables/ruleset.ts";
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

/** The owner of elements of no service port. Sorts before every service port's key. */
const NO_OWNER = "";

const NO_NAMES: ReadonlySet<string> = new Set();

/** Services and endpoints to plan from. */
type Served = Pick<SyncInput, "services" | "endpoints">;

/** The layout, configuration and facts that all plans share. */
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
  /** Maps that may lead clients to an address that is not an endpoint; to be cleared when that is looked at. */
  readonly doubtfulMaps = new Set<string>();
  /** The installed static plan, and the version of the sets in use from which it was made. */
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

  /** Plans the chains and sets of no service port, based on what the ports have now. */
  planStatic(): StaticPlan {
    const { layout, config, facts } = this.premises;
    return layout.planStatic(config, facts, this.#owners.setsInUse);
  }

  /** Records that the result of {@link planStatic} is installed. @returns that plan. */
  settleStatic(): StaticPlan {
    const plan = this.planStatic();
    this.#static = { plan, version: this.#owners.setsVersion };
    return plan;
  }

  /**
   * Adds to a draft the static changes that follow from changed ports, and records them as installed.
   *
   * @param rewrites names of chains to write even if they are believed to be right.
   */
  changeStatic(draft: TransactionDraft, rewrites: ReadonlySet<string> = NO_NAMES): void {
    const before = this.#static;
    const isNews = before?.version !== this.#owners.setsVersion;
    if (before !== undefined && (isNews || rewrites.size > 0)) {
      changeStatic(draft, before.plan, this.settleStatic(), rewrites);
    }
  }

  /** What a service port is believed to have in the kernel. */
  installed(owner: string): InstalledPort | undefined {
    return this.#ports.get(owner);
  }

  /** All service ports that are believed to have something in the kernel. */
  get ports(): ReadonlyMap<string, InstalledPort> {
    return this.#ports;
  }

  /** The service port that owns an element of a tracked set (`Layout.isTracked`). */
  portWith(set: string, key: string): InstalledPort | undefined {
    const owner = this.#owners.ownerAt(set, key);
    return owner === undefined ? undefined : this.#ports.get(owner);
  }

  /** The names of the affinity sets of all service ports. */
  *affinitySets(): Generator<string> {
    for (const { affinitySets } of this.ports.values()) yield* affinitySets.keys();
  }

  /**
   * The wanted elements of some shared sets, with their owners; no key of a set twice.
   *
   * @param owners only these; undefined stands for the elements of no service port. @default all
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

  /** Whether {@link wantedElements} may yield any. */
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
      // In most sets no two service ports want the same key, and none is computed.
      if (!this.#owners.remembers(set) || this.#owners.isEffective(owner, set, elementKey(element.key))) {
        yield { owner, set, element };
      }
    }
  }

  /** Records what a port has from now on; undefined: nothing. @returns the resulting changes of shared elements. */
  put(owner: string, installed: InstalledPort | undefined): ElementChange[] {
    const before = this.#ports.get(owner) ?? NOTHING_INSTALLED;
    return this.#replace(owner, wantsOf(before), installed, wantsOf(installed ?? NOTHING_INSTALLED));
  }

  /** Plans a service port that has nothing yet, and records the plan as installed. Undefined if it is not served. */
  place(owner: string, served: Served): DesiredPort | undefined {
    const desired = this.desired(owner, served);
    if (desired === undefined) return undefined;
    // Read before installedPort() settles it: after that, reading would plan it again.
    const wants = wantsOf(desired);
    this.#replace(owner, wantsOf(NOTHING_INSTALLED), installedPort(desired), wants);
    return desired;
  }

  /** @param before, after wants of what the port has and will have, passed in so that each is planned only once. */
  #replace(owner: string, before: Wants, installed: InstalledPort | undefined, after: Wants): ElementChange[] {
    if (installed === undefined) this.#ports.delete(owner);
    else this.#ports.set(owner, installed);
    return this.#owners.replace(owner, before, after);
  }

  /** Plans a service port as it is served. Undefined if it is not. */
  desired(owner: string, { services, endpoints }: Served): DesiredPort | undefined {
    const port = services.get(owner);
    return port && desiredPort(this.#plan, port, endpoints.get(owner) ?? []);
  }

  /**
   * Adds to a draft the change of one port from its installed to its wanted state, and records it as installed. If the
   * transaction is rejected, everything must be planned again.
   *
   * @param rewrites names of chains and affinity sets to write even if they are believed to be right.
   * @returns what it had.
   */
  change(
    draft: TransactionDraft,
    owner: string,
    served: Served,
    rewrites?: ReadonlySet<string>,
  ): InstalledPort | undefined {
    const before = this.#ports.get(owner);
    if (!this.changeSlots(draft, owner, served)) this.#changeTo(draft, owner, this.desired(owner, served), rewrites);
    return before;
  }

  /**
   * {@link change} for a port of which only endpoints change, without planning it. @returns false, with nothing done,
   * if other changes are possible.
   */
  changeSlots(draft: TransactionDraft, owner: string, served: Served): boolean {
    const { layout, config, facts } = this.premises;
    const before = this.#ports.get(owner);
    const port = served.services.get(owner);
    const endpoints = served.endpoints.get(owner);
    if (port === undefined || endpoints === undefined || !(before instanceof ReplannedPort)) return false;
    if (before.slots === undefined || !before.isOf(port)) return false;
    const changed = layout.changedSlots?.(port, before.slots, endpoints, config, facts);
    // In sets where other ports may want the same keys, those must be compared as well.
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
      this.doubtfulMaps.add(name);
    }
    for (const change of this.#replace(owner, had, desired && installedPort(desired), has)) {
      const set = sharedSetOfAny(change.set);
      if (set !== undefined) draft.changeElement(set, change, owner);
    }
  }
}

/** Reads the elements once, because a `ReplannedPort` plans them at each read. */
function wantsOf({ elements, isFound = false }: InstalledPort): Wants {
  return { elements, isFound };
}

/**
 * Adds to a draft the changes from the installed static plan to another one. The elements of deleted sets are left to
 * the changes of their owners.
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
