/**
 * Chains of many new service ports, made beforehand in portions, and in a new table the elements that lead to them. No rule looks
 * at either before the transaction that follows, so that traffic sees one change only. In one batch with everything else they would take the kernel much longer: for each
 * rule that brings a map along it goes through all of the batch so far (docs/performance.md).
 */
import type { NftChainContent, NftSetContent, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftElement, NftSet } from "../../kernel/nftables/ruleset.ts";
import { TransactionDraft } from "./draft.ts";
import type { DifferenceOptions } from "./element-difference.ts";
import type { Layout } from "./layout.ts";
import { TABLE_COMMENT } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import type { DesiredPort } from "./port-objects.ts";
import { Portions } from "./portions.ts";
import type { WantedTable } from "./reconcile.ts";
import type { SetsInUse, StaticPlan } from "./table-plan.ts";
import { hasOurShape } from "./table-shape.ts";
import type { OwnedElement } from "./table-state.ts";

/** Unless told otherwise. */
export const PORTS_AT_ONCE = 500;
/** The kernel goes through all chains for every commit: with fewer, that would be most of the work in a large table. */
const LEAST_PORTION = 64;

/** Chains of services need no shared set that is not always there. */
const NONE_IN_USE: SetsInUse = new Set();

type Commit = (draft: TransactionDraft) => Promise<void>;

export interface PreparationOptions extends DifferenceOptions {
  readonly commit: Commit;
  /** No more service ports than this are made in one transaction, and when no more are missing nothing is prepared. */
  readonly portsAtOnce: number;
}

/** What was made beforehand. */
export interface PreparedObjects {
  readonly chains: ReadonlyMap<string, NftChainContent>;
  readonly sets: ReadonlyMap<string, NftSetContent>;
  /** The kernel took all of it, so that the table need not be read again for it. */
  readonly isAll: boolean;
}

/**
 * @param content undefined when there is no table.
 * @returns what was committed; undefined when that is nothing. What the kernel refuses is left to the transaction that
 * follows; rejects for what is no operation's fault.
 */
export async function prepareChains(
  content: NftTableContent | undefined,
  { layout, config, facts, ports }: WantedTable,
  options: PreparationOptions,
): Promise<PreparedObjects | undefined> {
  const { portsAtOnce, yielder, signal } = options;
  const plan = planOf(layout, config, facts);
  // The chains would go with the table.
  if (content !== undefined && !hasOurShape(content, plan)) return undefined;
  const absent: [string, DesiredPort][] = [];
  for (const [owner, desired] of ports) {
    if (desired.chainObjects.length > 0 && !desired.chainObjects.some(({ name }) => content?.chains.has(name))) {
      absent.push([owner, desired]);
    }
    if (yielder.isDue()) await yielder.turn(signal);
  }
  if (absent.length <= portsAtOnce) return undefined;
  const preparation = new Preparation(content, plan, options);
  for (const [owner, desired] of absent) preparation.expect(owner, desired);
  try {
    await preparation.add(absent, options);
  } finally {
    await preparation.settled();
  }
  preparation.throwIfFailed();
  return preparation.made;
}

/** What belongs to no service port, as far as chains of service ports need it. Pure. */
export function planOf(layout: Layout, config: PlanConfig, facts: PlanFacts): StaticPlan {
  return layout.planStatic(config, facts, NONE_IN_USE);
}

/** Makes chains of service ports of which the table has none yet, a portion at a time, and in a new table elements with them. */
export class Preparation {
  readonly #isTableAbsent: boolean;
  /** The kernel looks for a set along all that were made before it: those that are needed most come first. */
  readonly #sets: readonly NftSet[];
  /** Those that may have elements before there is a rule. */
  readonly #fillable: ReadonlyMap<string, NftSet>;
  readonly #portions: Portions;
  readonly #made = new Made();

  /** @param content undefined when there is no table. */
  constructor(
    content: NftTableContent | undefined,
    { sets }: StaticPlan,
    { commit, portsAtOnce }: Pick<PreparationOptions, "commit" | "portsAtOnce">,
  ) {
    this.#isTableAbsent = content === undefined;
    this.#sets = sets.filter(({ name }) => !content?.sets.has(name));
    this.#portions = new Portions(commit, { least: LEAST_PORTION, most: portsAtOnce });
    for (const set of this.#sets) this.#made.addSet(set);
    this.#fillable = new Map(this.#sets.filter(isPlain).map((set) => [set.name, set]));
  }

  /** Notes what there will be of a service port once it was {@link Preparation.add}ed. */
  expect(owner: string, desired: DesiredPort): void {
    for (const set of desired.setObjects) this.#made.addSet(set);
    for (const { name } of desired.chainObjects) this.#made.addChain(name, desired.chains.get(name));
    if (!this.#isTableAbsent) return;
    for (const { set, element } of this.#elements([[owner, desired]])) this.#made.addElement(set, element);
  }

  /** Resolves when all portions but the last are in the kernel. @throws what is no operation's fault. */
  async add(
    ports: readonly (readonly [string, DesiredPort])[],
    { yielder, signal }: Pick<PreparationOptions, "yielder" | "signal">,
  ): Promise<void> {
    for (let start = 0; start < ports.length; ) {
      const draft = new TransactionDraft();
      if (this.#isTableAbsent) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
      for (const set of this.#sets) draft.add("add-sets", { kind: "add-set", set });
      const portion = ports.slice(start, start + this.#portions.size);
      for (const [owner, desired] of portion) this.#draft(draft, owner, desired);
      // The rules of a table that is there look into its sets.
      if (this.#isTableAbsent) this.#fill(draft, portion);
      start += portion.length;
      await this.#portions.commit(draft, portion.length);
      if (yielder.isDue()) await yielder.turn(signal);
      signal.throwIfAborted();
    }
  }

  /** Resolves when no portion is under way any more; never rejects. */
  settled(): Promise<void> {
    return this.#portions.done();
  }

  /** What was expected; once it is settled, whether it is there. */
  get made(): PreparedObjects {
    const { chains, sets } = this.#made;
    return { chains, sets, isAll: this.#portions.refused === 0 };
  }

  /** Once it is settled. @throws what is no operation's fault. */
  throwIfFailed(): void {
    this.#portions.throwIfFailed();
  }

  #draft(draft: TransactionDraft, owner: string, desired: DesiredPort): void {
    const { setObjects, chainObjects, chains } = desired;
    for (const set of setObjects) draft.add("add-sets", { kind: "add-set", set }, owner);
    for (const chain of chainObjects) draft.writeChain(chain, "absent", owner, chains.get(chain.name));
  }

  #fill(draft: TransactionDraft, ports: readonly (readonly [string, DesiredPort])[]): void {
    const count = ports.reduce((sum, [, { elements }]) => sum + elements.length, 0);
    draft.fillSets(this.#fillable, () => this.#elements(ports), count);
  }

  /** What may be in the table before its rules are; a key may come twice. */
  *#elements(ports: readonly (readonly [string, DesiredPort])[]): Iterable<OwnedElement> {
    for (const [owner, { elements, chains }] of ports) {
      for (const { set, element } of elements) {
        const { verdict } = element;
        // Chains of no service port come with the rules.
        const isThere = verdict === undefined || verdict.kind === "drop" || chains.has(verdict.chain);
        if (isThere && this.#fillable.has(set)) yield { owner, set, element };
      }
    }
  }
}

/** The kernel copies a set of ranges for each commit, and packets fill those with timeouts. */
export function isPlain({ hasRanges, timeoutSeconds }: NftSet): boolean {
  return hasRanges !== true && timeoutSeconds === undefined;
}

interface MadeSet extends NftSetContent {
  sent?: Set<NftElement>;
}

/** Chains and sets as they are in the kernel when it has taken everything. */
class Made {
  readonly chains = new Map<string, NftChainContent>();
  readonly sets = new Map<string, MadeSet>();

  /** @param digest of all rules together, which is all that is asked for. */
  addChain(name: string, digest = ""): void {
    this.chains.set(name, { hook: undefined, ruleDigests: digest === "" ? [] : [digest] });
  }

  addSet({ name, key, isMap, hasTargets, hasRanges, timeoutSeconds }: NftSet): void {
    this.sets.set(name, {
      key,
      isMap,
      ...(hasTargets === undefined ? {} : { hasTargets }),
      ...(hasRanges === undefined ? {} : { hasRanges }),
      timeoutSeconds,
      elements: [],
    });
  }

  addElement(name: string, element: NftElement): void {
    const set = this.sets.get(name);
    if (set === undefined) throw new Error(`set ${name} was not made`);
    set.sent ??= new Set();
    set.sent.add(element);
  }
}
