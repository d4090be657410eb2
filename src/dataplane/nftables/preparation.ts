/**
 * Chains of many new service ports, made beforehand in portions. Nothing leads to them until the transaction that follows,
 * so that traffic sees one change only. In one batch with everything else they would take the kernel much longer: for each
 * rule that brings a map along it goes through all of the batch so far (docs/performance.md).
 */
import type { NftChainContent, NftSetContent, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { isAttributable } from "./bisect-ports.ts";
import { TransactionDraft } from "./draft.ts";
import type { DifferenceOptions } from "./element-difference.ts";
import { TABLE_COMMENT } from "./names.ts";
import type { DesiredPort } from "./port-objects.ts";
import type { WantedTable } from "./reconcile.ts";
import type { SetsInUse } from "./table-plan.ts";
import { hasOurShape } from "./table-shape.ts";

/**
 * How much processor time a portion should take the kernel, which on many machines runs nothing else on that processor
 * meanwhile, not even this process's health checks. On a busy machine a commit takes many times as long, which smaller portions
 * would only make worse.
 */
const PORTION_MS = 25;
/** The kernel goes through all chains for every commit: with fewer, that would be most of the work in a large table. */
const LEAST_PORTION = 64;

/** Chains of services need no shared set that is not always there. */
const NONE_IN_USE: SetsInUse = new Set();

export interface PreparationOptions extends DifferenceOptions {
  readonly commit: (draft: TransactionDraft) => Promise<void>;
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
  { commit, portsAtOnce, yielder, signal }: PreparationOptions,
): Promise<PreparedObjects | undefined> {
  const plan = layout.planStatic(config, facts, NONE_IN_USE);
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
  const made = new Made();
  const portions = new Portions(commit, portsAtOnce);
  // The kernel looks for a set along all that were made before it: those that are needed most come first.
  const sets = plan.sets.filter(({ name }) => !content?.sets.has(name));
  for (const set of sets) made.addSet(set);
  try {
    for (let start = 0; start < absent.length; ) {
      const draft = new TransactionDraft();
      if (content === undefined) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
      for (const set of sets) draft.add("add-sets", { kind: "add-set", set });
      const end = start + portions.size;
      for (const [owner, { setObjects, chainObjects, chains }] of absent.slice(start, end)) {
        for (const set of setObjects) {
          draft.add("add-sets", { kind: "add-set", set }, owner);
          made.addSet(set);
        }
        for (const chain of chainObjects) {
          const digest = chains.get(chain.name);
          draft.writeChain(chain, "absent", owner, digest);
          made.addChain(chain.name, digest);
        }
      }
      start = end;
      await portions.commit(draft);
      if (yielder.isDue()) await yielder.turn(signal);
      signal.throwIfAborted();
    }
  } finally {
    await portions.done();
  }
  portions.throwIfFailed();
  return { chains: made.chains, sets: made.sets, isAll: portions.refused === 0 };
}

/** Processor time that the kernel has spent for this process. */
function kernelMs(): number {
  return process.cpuUsage().system / 1000;
}

/** Commits portions in their order, of which one is planned and encoded while the kernel works on the one before. */
class Portions {
  /** How many service ports the next should be for. */
  size: number;
  /** Portions that the kernel did not take. */
  refused = 0;
  readonly #commit: PreparationOptions["commit"];
  readonly #most: number;
  #underWay: Promise<void> = Promise.resolve();
  #endMs = 0;
  #eachMs: number | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(commit: PreparationOptions["commit"], most: number) {
    this.#commit = commit;
    this.#most = most;
    this.size = most;
  }

  /** Resolves when the one before is done. @throws what is no operation's fault. */
  async commit(draft: TransactionDraft): Promise<void> {
    const before = this.#underWay;
    this.#underWay = this.#carryOut(draft, this.size);
    await before;
    this.throwIfFailed();
  }

  /** Resolves when none is under way any more; never rejects. */
  async done(): Promise<void> {
    await this.#underWay;
  }

  throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #carryOut(draft: TransactionDraft, size: number): Promise<void> {
    const startMs = kernelMs();
    try {
      await this.#commit(draft);
    } catch (error) {
      this.refused += 1;
      if (!isAttributable(error)) this.#failure ??= { error };
    }
    const endMs = kernelMs();
    const eachMs = (endMs - Math.max(startMs, this.#endMs)) / size;
    // Processor time is counted in ticks: a single portion may seem to have taken none.
    this.#eachMs = this.#eachMs === undefined ? eachMs : (this.#eachMs + eachMs) / 2;
    this.size = Math.min(Math.max(Math.round(PORTION_MS / this.#eachMs), LEAST_PORTION), this.#most);
    this.#endMs = endMs;
  }
}

/** Chains and sets as they are in the kernel when it has taken everything. */
class Made {
  readonly chains = new Map<string, NftChainContent>();
  readonly sets = new Map<string, NftSetContent>();

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
}
