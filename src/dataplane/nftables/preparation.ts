/**
 * Makes the chains of many new service ports, and in a new table elements, in portions before the transaction that brings them into
 * force. No rule looks at either before, so traffic sees one change only. One batch with everything would keep a processor in the
 * kernel for seconds to minutes: for each rule that brings a map along, the kernel goes through the whole batch so far (docs/performance.md).
 */
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type {
  Nftables,
  NftChainContent,
  NftExpectation,
  NftSetContent,
  NftTableContent,
} from "../../kernel/nftables/nftables.ts";
import { type NftSet, targetsOf } from "../../kernel/nftables/ruleset.ts";
import { isAttributable } from "./bisect-ports.ts";
import { TransactionDraft } from "./draft.ts";
import { SETS, TABLE_COMMENT } from "./names.ts";
import { type DifferenceOptions, expectationOf, hasOurShape, type WantedTable } from "./reconcile.ts";
import type { TableState } from "./table-state.ts";

/** Unless told otherwise. */
export const PORTS_AT_ONCE = 500;
/** The kernel goes through all chains for every commit: with fewer, that would be most of the work in a large table. */
const LEAST_PORTION = 64;
/**
 * How much processor time a portion should take the kernel, which on many machines runs nothing else on that processor
 * meanwhile, not even this process's health checks. On a busy machine a commit takes many times as long, which smaller portions
 * would only make worse.
 */
const PORTION_MS = 25;

/** Their elements lead to a chain of no service port, which comes with the rules. */
const REFUSING_SETS: ReadonlySet<string> = new Set([
  ...[SETS.noEndpointServices, SETS.noEndpointNodePorts, SETS.localhostRejectPorts],
]);

interface PreparationOptions extends DifferenceOptions {
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** No more service ports than this are made in one transaction, and when no more are missing nothing is prepared. */
  readonly portsAtOnce: number;
}

interface ReadPreparedOptions extends PreparationOptions {
  readonly nft: Pick<Nftables, "mark" | "generationIfUntouched">;
  readonly read: (expected: NftExpectation) => Promise<NftTableContent | undefined>;
}

/**
 * Reads the table, and makes what is missing when that is much. With it the content of the table is known; it is read once more only
 * where the kernel refused something, or another program was there.
 *
 * @param state of what is wanted; not to be changed meanwhile.
 * @returns undefined when there is no table.
 */
export async function readPrepared(
  wanted: WantedTable,
  state: TableState,
  { nft, read, ...options }: ReadPreparedOptions,
): Promise<NftTableContent | undefined> {
  const expected = expectationOf(state);
  const mark = await nft.mark();
  const content = await read(expected);
  const made = await prepare(content, wanted, state, options);
  if (made === undefined) return content;
  const generation = made.isAll ? await nft.generationIfUntouched(mark) : undefined;
  if (generation === undefined) return await read(expected);
  const { isDormant = false, hasOtherFlags = false, counters = new Map<string, number>() } = content ?? {};
  const chains = new Map([...(content?.chains ?? []), ...made.chains]);
  const sets = new Map([...(content?.sets ?? []), ...made.sets]);
  return { generation, isDormant, hasOtherFlags, chains, sets, counters };
}

/** Chains and sets that were made beforehand. */
interface PreparedObjects extends Pick<NftTableContent, "chains" | "sets"> {
  /** The kernel took all of it, so that the table need not be read again for it. */
  readonly isAll: boolean;
}

/**
 * Leaves to the transaction that follows what the kernel refuses. Rejects with errors that are no operation's fault.
 *
 * @returns undefined when nothing was committed.
 */
async function prepare(
  content: NftTableContent | undefined,
  { layout, ports }: WantedTable,
  state: TableState,
  { commit, portsAtOnce, signal }: PreparationOptions,
): Promise<PreparedObjects | undefined> {
  const plan = state.planStatic();
  const isNew = content === undefined;
  // The chains would go with the table.
  if (!isNew && !hasOurShape(content, plan)) return undefined;
  const absent: string[] = [];
  for (const [owner, { chainObjects }] of ports) {
    const hasNone = chainObjects.length > 0 && !chainObjects.some(({ name }) => content?.chains.has(name));
    if (isNew || hasNone) absent.push(owner);
    if (isTurnDue()) await giveTurn(signal);
  }
  if (absent.length <= portsAtOnce) return undefined;
  // The kernel looks for a set along all that were made before it: those that are needed most come first.
  const missing = plan.sets.filter((set) => set.timeoutSeconds === undefined && !content?.sets.has(set.name));
  const isFilled = (set: NftSet) => !set.isMap || (layout.hasPortChains === true && !REFUSING_SETS.has(set.name));
  // The rules of a table that is there look into its sets.
  const filled = new Map(isNew ? missing.filter(isFilled).map((set) => [set.name, set]) : []);
  const chains = new Map<string, NftChainContent>();
  const sets = new Map(missing.map((set) => [set.name, made(set, filled.has(set.name))]));
  const portions = new Portions(commit, portsAtOnce);
  try {
    for (let start = 0; start < absent.length; ) {
      const portion = absent.slice(start, start + portions.size);
      const draft = new TransactionDraft();
      if (isNew) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
      for (const set of missing) draft.add("add-sets", { kind: "add-set", set });
      for (const owner of portion) {
        const desired = ports.get(owner);
        for (const set of desired?.setObjects ?? []) {
          draft.add("add-sets", { kind: "add-set", set }, owner);
          sets.set(set.name, made(set, false));
        }
        for (const chain of desired?.chainObjects ?? []) {
          const digest = desired?.chains.get(chain.name);
          draft.writeChain(chain, "absent", owner, digest);
          chains.set(chain.name, { hook: undefined, ruleDigests: digest ? [digest] : [], targets: targetsOf(chain) });
        }
      }
      // The first portion has what is for no service port, too.
      const owners = start === 0 ? [undefined, ...portion] : portion;
      // Made again whenever they are asked for: what lives as long as a commit outlives the young generation.
      if (isNew) draft.fillSets(filled, () => state.wantedElements(filled, owners));
      start += portion.length;
      await portions.commit(draft, portion.length);
      if (isTurnDue()) await giveTurn(signal);
      signal.throwIfAborted();
    }
  } finally {
    await portions.done();
  }
  portions.throwIfFailed();
  return { chains, sets, isAll: portions.refused === 0 };
}

/** A set as the kernel has it: with all that is wanted, or empty. */
function made({ key, isMap, hasTargets, hasCounters, timeoutSeconds }: NftSet, isFilled: boolean): NftSetContent {
  return {
    key,
    isMap,
    ...(hasTargets && { hasTargets }),
    ...(hasCounters && { hasCounters }),
    timeoutSeconds,
    elements: [],
    ...(isFilled && { others: new Map() }),
  };
}

/** Processor time that the kernel has spent for this process. */
function kernelMs(): number {
  return process.cpuUsage().system / 1000;
}

/** Commits portions in their order, of which one is planned and encoded while the kernel works on the one before. */
class Portions {
  /** How many service ports the next should have. */
  size: number;
  /** Portions that the kernel did not take. */
  refused = 0;
  readonly #commit: (draft: TransactionDraft) => Promise<void>;
  readonly #most: number;
  #underWay: Promise<void> = Promise.resolve();
  #endMs = 0;
  #eachMs: number | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(commit: (draft: TransactionDraft) => Promise<void>, most: number) {
    this.#commit = commit;
    this.#most = most;
    this.size = most;
  }

  /** Resolves when the portion before is done. @param ports in this one. @throws what is no operation's fault. */
  async commit(draft: TransactionDraft, ports: number): Promise<void> {
    const before = this.#underWay;
    this.#underWay = this.#carryOut(draft, ports);
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

  async #carryOut(draft: TransactionDraft, ports: number): Promise<void> {
    const startMs = kernelMs();
    try {
      await this.#commit(draft);
    } catch (error) {
      this.refused += 1;
      if (!isAttributable(error)) this.#failure ??= { error };
    }
    const endMs = kernelMs();
    const eachMs = (endMs - Math.max(startMs, this.#endMs)) / ports;
    // Processor time is counted in ticks: a single portion may seem to have taken none.
    this.#eachMs = this.#eachMs === undefined ? eachMs : (this.#eachMs + eachMs) / 2;
    this.size = Math.min(Math.max(Math.round(PORTION_MS / this.#eachMs), LEAST_PORTION), this.#most);
    this.#endMs = endMs;
  }
}
