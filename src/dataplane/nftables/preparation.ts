/**
 * Chains of many new service ports, made beforehand in portions. Nothing leads to them until the transaction that follows,
 * so that traffic sees one change only. In one batch with everything else they would take the kernel much longer: for each
 * rule that brings a map along it goes through all of the batch so far (docs/performance.md).
 */
import type { NftChainContent, NftSetContent, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { TransactionDraft } from "./draft.ts";
import type { DifferenceOptions } from "./element-difference.ts";
import { TABLE_COMMENT } from "./names.ts";
import type { DesiredPort } from "./port-objects.ts";
import { Portions } from "./portions.ts";
import type { WantedTable } from "./reconcile.ts";
import type { SetsInUse } from "./table-plan.ts";
import { hasOurShape } from "./table-shape.ts";

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
  const portions = new Portions(commit, { least: LEAST_PORTION, most: portsAtOnce });
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
