/**
 * Creates the chains of many new service ports, and in a new table their elements, in portions before the transaction that
 * puts them into force. No rule uses either before that, so traffic sees a single change. One batch would keep a CPU in the
 * kernel for seconds to minutes: for each rule with an anonymous map, it walks the whole batch so far (docs/notes/performance-diary.md).
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
import { isAttributable } from "./accepted-table.ts";
import { TransactionDraft } from "./draft.ts";
import { SETS, TABLE_COMMENT } from "./names.ts";
import { expectationOf, hasOurShape, type WantedTable } from "./reconcile.ts";
import type { TableState } from "./table-state.ts";

/** The default of `NftablesBackendOptions.portsAtOnce`. */
export const PORTS_AT_ONCE = 500;
/** The fewest ports in a portion: every commit makes the kernel walk all chains, most of the work in a large table. */
const LEAST_PORTION = 64;
/**
 * The CPU time that a portion should take in the kernel. On many machines nothing else runs on that CPU in the
 * meantime, not even this process's health checks. It is not wall-clock time: on a busy machine a commit takes many
 * times as long, and smaller portions would only make that worse.
 */
const PORTION_MS = 25;

/** Maps whose elements lead to a fixed chain, which is created with the rules. */
const REFUSING_SETS: ReadonlySet<string> = new Set([
  ...[SETS.noEndpointServices, SETS.noEndpointNodePorts, SETS.localhostRejectPorts],
]);

interface PreparationOptions {
  readonly signal: AbortSignal;
  readonly commit: (draft: TransactionDraft) => Promise<void>;
  /** The most service ports in one transaction; if no more than this are missing, nothing is prepared. */
  readonly portsAtOnce: number;
}

interface ReadPreparedOptions extends PreparationOptions {
  readonly nft: Pick<Nftables, "mark" | "generationIfUntouched">;
  readonly read: (expected: NftExpectation) => Promise<NftTableContent | undefined>;
}

/**
 * Reads the table, and creates missing objects if there are many. The content is then known, and is read again only if
 * the kernel rejected a portion, or another program changed the table.
 *
 * @param state the wanted state; must not change in the meantime.
 * @returns undefined if there is no table.
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

/** Chains and sets that were created in advance. */
interface PreparedObjects extends Pick<NftTableContent, "chains" | "sets"> {
  /** Whether the kernel accepted everything, so that the table need not be read again. */
  readonly isAll: boolean;
}

/**
 * Leaves what the kernel rejects to the transaction that follows. Rejects with errors that no operation can cause.
 *
 * @returns undefined if nothing was committed.
 */
async function prepare(
  content: NftTableContent | undefined,
  { layout, ports }: WantedTable,
  state: TableState,
  { commit, portsAtOnce, signal }: PreparationOptions,
): Promise<PreparedObjects | undefined> {
  const plan = state.planStatic();
  const isNew = content === undefined;
  // The table will be recreated, and the chains would be lost with it.
  if (!isNew && !hasOurShape(content, plan)) return undefined;
  const absent: string[] = [];
  for (const [owner, { chainObjects }] of ports) {
    const hasNone = chainObjects.length > 0 && !chainObjects.some(({ name }) => content?.chains.has(name));
    if (isNew || hasNone) absent.push(owner);
    if (isTurnDue()) await giveTurn(signal);
  }
  if (absent.length <= portsAtOnce) return undefined;
  // The kernel finds a set by walking those created before it: the most used ones come first.
  const missing = plan.sets.filter((set) => set.timeoutSeconds === undefined && !content?.sets.has(set.name));
  const isFilled = (set: NftSet) => !set.isMap || (layout.hasPortChains === true && !REFUSING_SETS.has(set.name));
  // The rules of an existing table already use its sets.
  const filled = new Map(isNew ? missing.filter(isFilled).map((set) => [set.name, set]) : []);
  const chains = new Map<string, NftChainContent>();
  const sets = new Map(missing.map((set) => [set.name, made(set, filled.has(set.name))]));
  // Chains of ports may lead to these; their rules come with the transaction that follows.
  const fixed = new Set(plan.chains.map(({ name }) => name).filter((name) => !content?.chains.has(name)));
  const portions = new Portions(commit, portsAtOnce);
  try {
    for (let start = 0; start < absent.length; ) {
      const portion = absent.slice(start, start + portions.size);
      const draft = new TransactionDraft();
      if (isNew) draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
      for (const set of missing) draft.add("add-sets", { kind: "add-set", set });
      const targets = new Set<string>();
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
          for (const target of targetsOf(chain)) if (fixed.has(target)) targets.add(target);
        }
      }
      for (const name of targets) {
        draft.add("add-chains", { kind: "add-chain", chain: { name } });
        chains.set(name, { hook: undefined, ruleDigests: [] });
      }
      // The first portion also has the elements of no service port.
      const owners = start === 0 ? [undefined, ...portion] : portion;
      // Generated at each read: objects that live as long as a commit would reach V8's old generation.
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

/** A set as the kernel has it, with all wanted elements or empty. */
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

/** CPU time that the kernel has spent for this process. */
function kernelMs(): number {
  return process.cpuUsage().system / 1000;
}

/** Commits portions in order; while the kernel works on one, the next is planned and encoded. */
class Portions {
  /** How many service ports the next portion should have. */
  size: number;
  /** How many portions the kernel rejected. */
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

  /** Resolves when the previous portion is done. @param ports in this one. @throws what no operation can cause. */
  async commit(draft: TransactionDraft, ports: number): Promise<void> {
    const before = this.#underWay;
    this.#underWay = this.#carryOut(draft, ports);
    await before;
    this.throwIfFailed();
  }

  /** Resolves when the last portion is done; never rejects. */
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
    // CPU time is counted in ticks: a single portion may seem to take none.
    this.#eachMs = this.#eachMs === undefined ? eachMs : (this.#eachMs + eachMs) / 2;
    this.size = Math.min(Math.max(Math.round(PORTION_MS / this.#eachMs), LEAST_PORTION), this.#most);
    this.#endMs = endMs;
  }
}
