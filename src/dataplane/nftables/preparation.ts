/**
 * Chains of many new service ports, made beforehand in portions. Nothing leads to them until the transaction that follows,
 * so that traffic sees one change only. In one batch with everything else they would take the kernel much longer: for each
 * rule that brings a map along it goes through all of the batch so far (docs/performance.md).
 */
import type { NftTableContent } from "../../kernel/nftables/nftables.ts";
import { isAttributable } from "./bisect-ports.ts";
import { TransactionDraft } from "./draft.ts";
import type { DifferenceOptions } from "./element-difference.ts";
import { TABLE_COMMENT } from "./names.ts";
import type { DesiredPort } from "./port-objects.ts";
import type { WantedTable } from "./reconcile.ts";
import type { SetsInUse } from "./table-plan.ts";
import { hasOurShape } from "./table-shape.ts";

/**
 * How long a portion should take the kernel, which on many machines runs nothing else on that processor meanwhile, not even
 * this process's health checks.
 */
const PORTION_MS = 25;
/** The kernel goes through all chains for every commit: with fewer, that would be most of the work in a large table. */
const LEAST_PORTION = 32;

/** Chains of services need no shared set that is not always there. */
const NONE_IN_USE: SetsInUse = new Set();

export interface PreparationOptions extends DifferenceOptions {
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** No more service ports than this are made in one transaction, and when no more are missing nothing is prepared. */
  readonly portsAtOnce: number;
}

/**
 * @param content undefined when there is no table.
 * @returns whether anything was committed, so that the table must be read again. What the kernel refuses is left to the
 * transaction that follows; rejects for what is no operation's fault.
 */
export async function prepareChains(
  content: NftTableContent | undefined,
  { layout, config, facts, ports }: WantedTable,
  { commit, portsAtOnce, yielder, signal }: PreparationOptions,
): Promise<boolean> {
  const plan = layout.planStatic(config, facts, NONE_IN_USE);
  // The chains would go with the table.
  if (content !== undefined && !hasOurShape(content, plan)) return false;
  const absent: [string, DesiredPort][] = [];
  for (const [owner, desired] of ports) {
    if (desired.chainObjects.length > 0 && !desired.chainObjects.some(({ name }) => content?.chains.has(name))) {
      absent.push([owner, desired]);
    }
    if (yielder.isDue()) await yielder.turn(signal);
  }
  if (absent.length <= portsAtOnce) return false;
  let size = portsAtOnce;
  for (let start = 0; start < absent.length; ) {
    const draft = new TransactionDraft();
    if (content === undefined) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
    // The kernel looks for a set along all that were made before it: those that are needed most come first.
    for (const set of plan.sets) if (!content?.sets.has(set.name)) draft.add("add-sets", { kind: "add-set", set });
    for (const [owner, { setObjects, chainObjects }] of absent.slice(start, start + size)) {
      for (const set of setObjects) draft.add("add-sets", { kind: "add-set", set }, owner);
      for (const chain of chainObjects) draft.writeChain(chain, "absent", owner);
    }
    start += size;
    const startMs = performance.now();
    try {
      await commit(draft);
    } catch (error) {
      if (!isAttributable(error)) throw error;
    }
    const fitting = Math.round((size * PORTION_MS) / (performance.now() - startMs));
    size = Math.min(Math.max(fitting, LEAST_PORTION), portsAtOnce);
    if (yielder.isDue()) await yielder.turn(signal);
    signal.throwIfAborted();
  }
  return true;
}
