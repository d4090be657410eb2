/**
 * Elements of a table that nothing leads to yet, made beforehand in portions: no packet sees them before the transaction that follows
 * brings the rules. In one batch with everything the kernel keeps a processor to itself for a second with 30,000 services, and begins
 * only when all of it is encoded (docs/performance.md).
 */
import type { NftSetContent, NftTableContent } from "../../kernel/nftables/nftables.ts";
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { TransactionDraft } from "./draft.ts";
import { TABLE_COMMENT } from "./names.ts";
import { Portions } from "./portions.ts";
import { isPlain, type PreparationOptions, type PreparedObjects } from "./preparation.ts";
import type { TableState } from "./table-state.ts";

/** With fewer service ports a commit's own cost would show. */
const LEAST_PORTION = 64;

/**
 * @param content undefined when there is no table.
 * @param state of what is wanted; not to be changed meanwhile.
 * @returns what was committed; undefined when that is nothing. What the kernel refuses is left to the transaction that
 * follows; rejects for what is no operation's fault.
 */
export async function prepareElements(
  content: NftTableContent | undefined,
  state: TableState,
  { commit, portsAtOnce, yielder, signal }: PreparationOptions,
): Promise<PreparedObjects | undefined> {
  // Rules that are there may look into any set.
  if (content !== undefined || state.ports.size <= portsAtOnce) return undefined;
  const sets = new Map(
    state
      .planStatic()
      // Verdicts lead to chains, which are not there.
      .sets.filter((set) => !set.isMap && isPlain(set))
      .map((set) => [set.name, set]),
  );
  const owners = [undefined, ...state.ports.keys()];
  const each = state.countWanted(sets) / owners.length;
  const portions = new Portions(commit, { least: LEAST_PORTION, most: portsAtOnce });
  try {
    for (let start = 0; start < owners.length; ) {
      const portion = owners.slice(start, start + portions.size);
      start += portion.length;
      const draft = new TransactionDraft();
      draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
      for (const set of sets.values()) draft.add("add-sets", { kind: "add-set", set });
      // Made again whenever they are asked for: what lives as long as a commit outlives the young generation.
      draft.fillSets(sets, () => state.wantedElementsOf(portion, sets), Math.ceil(each * portion.length));
      await portions.commit(draft, portion.length);
      if (yielder.isDue()) await yielder.turn(signal);
      signal.throwIfAborted();
    }
  } finally {
    await portions.done();
  }
  portions.throwIfFailed();
  const made = new Map(Array.from(sets.values(), (set) => [set.name, asCompared(set)]));
  return { chains: new Map(), sets: made, isAll: portions.refused === 0 };
}

/** A set with all that is wanted. */
function asCompared({ key, isMap, hasTargets }: NftSet): NftSetContent {
  return {
    key,
    isMap,
    ...(hasTargets === undefined ? {} : { hasTargets }),
    timeoutSeconds: undefined,
    elements: [],
    others: new Map(),
  };
}
