/**
 * The nftables mode for one address family: plans what changed and commits the difference in one batch. At the start,
 * and whenever the known state is in doubt, an ordinary full sync reads the table and writes only what differs.
 * Reference nftables-operation.md §11.
 */

import { type Clock, systemClock } from "../../async/clock.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { Backend, FormerEndpoint, OnLostRules, SyncInput, SyncOutcome } from "../../contract/backend.ts";
import {
  type Nftables,
  NftError,
  type NftExpectation,
  type NftForeignChange,
  type NftMark,
  type NftTableContent,
} from "../../kernel/nftables/nftables.ts";
import type { Logger } from "../../logging/logger.ts";
import { someOf } from "../../logging/some-of.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { UNKNOWN_ADDRESSES } from "../shared/unknown-addresses.ts";
import { commitAccepted, isAttributable } from "./accepted-table.ts";
import { Committer } from "./committer.ts";
import { TransactionDraft } from "./draft.ts";
import { forgetCatchAlls, forgetClients } from "./flat/clients.ts";
import { assessDamage, ForeignWarnings, OpenDamage } from "./foreign-damage.ts";
import { formerEndpoints } from "./former-endpoints.ts";
import type { LayoutName } from "./layout-name.ts";
import { LAYOUTS, type Layout } from "./layouts.ts";
import type { LocalhostRelay } from "./localhost-relay.ts";
import type { NftablesMetrics } from "./metrics.ts";
import { isAffinitySet, isOfServicePort, ownerIn, TABLE, TABLE_COMMENT } from "./names.ts";
import { NO_FACTS, type PlanConfig, planFacts } from "./plan-options.ts";
import type { InstalledPort } from "./port-objects.ts";
import { PORTS_AT_ONCE, readPrepared } from "./preparation.ts";
import { foreignBaseChains, planWhole, reconcile, repairSets, type WantedTable } from "./reconcile.ts";
import { Retries } from "./retries.ts";
import { TableState } from "./table-state.ts";

const REFUSED = "The kernel refused a service port; its last known good rules stay";
const TAKEN = "A service port that was refused is in the kernel, or gone";

/** How many times a full sync starts over because another program changed the ruleset while it was computed. */
const MAX_CONFLICTS = 5;
const SYNC_PERIOD_MS = 30_000;
const NOTHING: ReadonlySet<string> = new Set();

export interface NftablesBackendOptions {
  readonly config: PlanConfig;
  /** @default "Compatible" */
  readonly layout?: LayoutName;
  readonly nft: Nftables;
  /** Called by every full sync. Resolves to undefined if the host's addresses cannot be read. */
  readonly nodePortIPs: () => Promise<NodePortIPs | undefined>;
  /** Serves node ports on loopback addresses. @default they are not served */
  readonly localhost?: Pick<LocalhostRelay, "sync" | "close">;
  readonly metrics: NftablesMetrics;
  readonly log: Logger;
  /** @default the system clock */
  readonly clock?: Pick<Clock, "monotonicMs" | "sleep">;
  /** How often to check whether other programs changed the table. @default 30 s */
  readonly syncPeriodMs?: number;
  /** More new service ports than this get their chains in portions, before anything leads to them. @default 500 */
  readonly portsAtOnce?: number;
}

export class NftablesBackend implements Backend {
  readonly mode = "nftables";
  readonly family;
  readonly usesServiceCIDRs = true;
  /** Undefined unless all owners are tracked: an element that moves between service ports must then stay in one draft. */
  readonly portsAtOnce;
  readonly #options: NftablesBackendOptions;
  readonly #layout: Layout;
  readonly #committer: Committer;
  #state: TableState;
  /** Whether the kernel is believed to match the state. */
  #isKnown = false;
  /** Service ports whose rules the kernel rejected in the last sync; they keep their last known good rules, if any. */
  readonly #refused: RefusedPorts;
  readonly #retries: Retries;
  /** Chains and sets that other programs changed since the last sync began, or that this sync failed to write. */
  readonly #damage = new OpenDamage();
  #wasWatched = false;
  /** The mark taken just before the last read of the table. */
  #readAt: NftMark | undefined;
  /** The next sync compares everything. */
  #mustLook = false;
  /** Set while changes by other programs are watched. */
  #onRepaired: (() => void) | undefined;
  /** Base chains of other programs in our table. */
  #foreign: readonly string[] = [];
  /** Endpoints of an earlier process's table, from the first full sync on. */
  #former: FormerEndpoint[] | undefined;
  readonly #warnings: ForeignWarnings;
  /** Whether the last attempt to read the node's addresses succeeded. */
  #knowsAddresses = true;

  constructor(options: NftablesBackendOptions) {
    const { nft, metrics, log, config, layout = "Compatible" } = options;
    this.#options = options;
    this.#layout = LAYOUTS[layout];
    this.portsAtOnce = this.#layout.isTracked === undefined ? PORTS_AT_ONCE : undefined;
    this.#state = new TableState({ layout: this.#layout, config, facts: NO_FACTS });
    this.family = options.config.family;
    this.#refused = new RefusedPorts(
      ({ subject, reason }) => log.error(REFUSED, new Error(reason), { servicePort: subject }),
      ({ subject }) => log.info(TAKEN, { servicePort: subject, solves: REFUSED }),
    );
    const { clock = systemClock } = options;
    this.#retries = new Retries(this.#refused, clock);
    this.#committer = new Committer({ nft, cleanupFailures: metrics.cleanupFailures, log, clock });
    this.#warnings = new ForeignWarnings(log, clock);
  }

  get restMs(): number {
    return this.#committer.restMs;
  }

  get remarks(): readonly string[] {
    if (this.#foreign.length === 0) return [];
    const table = `${this.#options.nft.family} ${TABLE}`;
    return [`Packets pass chains of other programs in table ${table}: ${someOf(this.#foreign)}`];
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const { metrics } = this.#options;
    const { syncFailures } = metrics;
    let isDone = false;
    // Taken before the first await: ports that other programs damage from now on are not among the changed ones.
    const damaged = this.#damage.names.size === 0 ? NOTHING : this.#damage.take();
    try {
      // Even a needless await costs a turn of the event loop, and a stream of changes makes hundreds of syncs a second.
      const { deferred } = this.#committer;
      const mayBePartial = this.#isKnown && !input.isFullSync && !this.#mustLook;
      const isPartial = mayBePartial && (this.#refused.size === 0 || !this.#retries.areDue(input));
      if (isPartial && deferred.size > 0) await this.#committer.deleteDeferred();
      isDone = isPartial && (await this.#partialSync(input, damaged, signal));
      if (!isDone) await this.#fullSync(input, signal);
      // A full comparison removes anything that still referred to them.
      if (!isPartial && deferred.size > 0) await this.#committer.deleteDeferred();
      const { doubtfulMaps } = this.#state;
      const maps = isDone ? [...doubtfulMaps] : (this.#layout.clientMaps?.(this.#state.planStatic()) ?? []);
      doubtfulMaps.clear();
      if (maps.length > 0) await this.#forgetClients(maps);
      if (!isDone || damaged.size > 0) {
        await this.#forgetCatchAlls(isDone ? [...damaged].filter(isAffinitySet) : this.#state.affinitySets());
      }
      await this.#options.localhost?.sync(input);
    } catch (error) {
      this.#isKnown = false;
      syncFailures.inc();
      throw error;
    }
    if (this.#refused.size > 0) syncFailures.inc();
    const failures = [...this.#refused.values(), ...(this.#knowsAddresses ? [] : [UNKNOWN_ADDRESSES])];
    const formerEndpoints = this.#former?.splice(0) ?? [];
    return { failures, formerEndpoints, ...this.#committer.take(), wasFull: !isDone };
  }

  /** Deletes session affinity entries that lead to endpoints that are gone; the rules no longer lead there by then. */
  async #forgetClients(maps: readonly string[]): Promise<void> {
    const clients = await forgetClients(this.#options.nft, maps, this.#state);
    if (clients > 0) this.#options.log.v(4, "Forgot clients whose endpoints are gone", { clients });
  }

  async #forgetCatchAlls(affinitySets: Iterable<string>): Promise<void> {
    const sets = await forgetCatchAlls(this.#options.nft, affinitySets);
    if (sets > 0) this.#options.log.warn("Removed what sent all clients of Services to one endpoint", { sets });
  }

  async chainHistory() {
    return await this.#options.nft.chainHistory?.();
  }

  async close(): Promise<void> {
    await this.#options.localhost?.close();
  }

  /** Watches what other programs do to the table. */
  async monitor(onLost: OnLostRules, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const watching = this.#options.nft.watch((change) => this.#onForeignChange(change, onLost, requestSync), signal);
    this.#retries.watch = { signal, requestSync };
    this.#onRepaired = () => onLost({ ports: new Set() });
    // Changes since the previous watch ended went unseen.
    if (this.#wasWatched) onLost();
    this.#wasWatched = true;
    const failed = new AbortController();
    const looking = this.#lookAround(AbortSignal.any([signal, failed.signal]), requestSync);
    try {
      await watching;
    } finally {
      failed.abort();
      await looking;
    }
  }

  /** Requests a full comparison if other programs changed the table or the node's addresses are unknown. Never rejects. */
  async #lookAround(signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { clock = systemClock, syncPeriodMs = SYNC_PERIOD_MS } = this.#options;
    for (;;) {
      await clock.sleep(syncPeriodMs, signal);
      if (signal.aborted) return;
      if (!this.#knowsAddresses) this.#isKnown = false;
      else if ((await this.#isUntouched()) || signal.aborted) continue;
      else this.#mustLook = true;
      requestSync();
    }
  }

  /** Whether no other program changed the table since the last read or check. Never rejects. */
  async #isUntouched(): Promise<boolean> {
    const { nft } = this.#options;
    const since = this.#readAt;
    if (since === undefined) return true;
    try {
      const now = await nft.mark();
      if ((await nft.generationIfUntouched(since)) === undefined) return false;
      if (this.#readAt === since) this.#readAt = now;
      return true;
    } catch {
      return false;
    }
  }

  #onForeignChange(change: NftForeignChange, onLost: OnLostRules, requestSync: () => void): void {
    const damage = assessDamage(change, this.#state.ports);
    if (damage === undefined) return;
    if (damage.kind === "unknown") {
      this.#mustLook = true;
      requestSync();
      return;
    }
    this.#warnings.note(change);
    if (damage.kind === "total") {
      onLost(undefined, change.by?.name);
      return;
    }
    const isOpen = this.#damage.note(damage.names, change.generation);
    onLost({ ports: isOpen ? damage.ports : new Set() }, change.by?.name);
  }

  /** Commits only the changed ports, without those that the kernel rejects. Resolves to false when a full sync must take over. */
  async #partialSync(input: SyncInput, damaged: ReadonlySet<string>, signal: AbortSignal): Promise<boolean> {
    const { nft, metrics, log } = this.#options;
    const draft = new TransactionDraft();
    const state = this.#state;
    if (damaged.size > 0 && !(await repairSets(draft, damaged, { state, nft, signal }))) return false;
    const before = new Map<string, InstalledPort | undefined>();
    for (const key of input.changedPorts) {
      if (this.#refused.has(key)) continue;
      before.set(key, state.change(draft, key, input, damaged));
      if (isTurnDue()) await giveTurn(signal);
    }
    state.changeStatic(draft, damaged);
    try {
      await this.#committer.commit(draft);
    } catch (error) {
      if (!isAttributable(error)) throw error;
      for (const [key, installed] of before) state.put(key, installed);
      metrics.syncFailures.inc();
      log.error("nftables partial sync was refused, comparing all rules with the kernel's", error);
      return false;
    }
    // Damaged ports that are not in this portion may come with a later one.
    if (damaged.size > 0) {
      const ofPorts = [...damaged].filter(isOfServicePort);
      this.#damage.add(ofPorts.filter((name) => !input.changedPorts.has(ownerIn(name) ?? "")));
    }
    return true;
  }

  async #fullSync(input: SyncInput, signal: AbortSignal): Promise<void> {
    const { clock = systemClock } = this.#options;
    const startMs = clock.monotonicMs();
    this.#isKnown = false;
    const isLook = this.#mustLook;
    this.#mustLook = false;
    const { config } = this.#options;
    const nodePortIPs = await this.#options.nodePortIPs();
    this.#knowsAddresses = nodePortIPs !== undefined;
    const known = nodePortIPs ?? this.#state.premises.facts.nodePortIPs;
    const facts = planFacts(input, this.family, known);
    const premises = { layout: this.#layout, config, facts };
    const { wanted, state } = await planWhole(premises, input, signal);
    for (let conflicts = 0; ; conflicts += 1) {
      try {
        await this.#commitWhole(wanted, state, input, isLook, signal);
        break;
      } catch (error) {
        if (!(error instanceof NftError) || error.code !== "conflict" || conflicts >= MAX_CONFLICTS) throw error;
      }
    }
    this.#isKnown = true;
    this.#retries.compared(clock.monotonicMs() - startMs);
  }

  /** Rejects with `conflict` if another program changed the ruleset in the meantime. */
  async #commitWhole(
    wanted: WantedTable,
    state: TableState,
    input: SyncInput,
    isLook: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const options = { deferred: this.#committer.deferred, signal };
    const { nft, portsAtOnce = PORTS_AT_ONCE } = this.#options;
    const read = (expected?: NftExpectation) => this.#read(expected);
    const commit = (part: TransactionDraft) => this.#committer.commit(part);
    let content = await readPrepared(wanted, state, { ...options, commit, portsAtOnce, nft, read });
    this.#noteForeign(content);
    this.#former ??= (content && (await this.#formerEndpoints(content, wanted, input))) ?? [];
    const draft = await reconcile(content, wanted, state, options);
    try {
      await this.#committer.commit(draft, content?.generation);
      await this.#wake(content);
      if (isLook && draft.isForOthersThan(input.changedPorts)) {
        this.#options.log.warn("Another program changed our nftables rules; they have been repaired");
        this.#onRepaired?.();
      }
      this.#state = state;
      this.#refused.replace(new Map());
      return;
    } catch (error) {
      if (content?.hasOtherFlags === true && error instanceof NftError && error.code === "denied") {
        const message = `nftables: table ${nft.family} ${TABLE} belongs to another process (flag owner), and the kernel lets no other change it: end that process`;
        throw new NftError("denied", message, error.operation, { cause: error });
      }
      if (!isAttributable(error)) throw error;
      // Finding what rejected ports have in the kernel takes a listing of all elements.
      const isCompared = [...(content?.sets.values() ?? [])].some(({ others }) => others !== undefined);
      if (isCompared) content = await this.#read();
      this.#state = await commitAccepted({ draft, state, error }, content, wanted, {
        ...options,
        services: input.services,
        before: this.#state,
        refused: this.#refused,
        read,
        commit: (attempt, generation) => this.#committer.commit(attempt, generation),
      });
      await this.#wake(content);
    }
  }

  /**
   * Switches a dormant table back on. Runs after the rules are right, because the kernel rejects a transaction that
   * does this and also changes base chains.
   */
  async #wake(content: NftTableContent | undefined): Promise<void> {
    if (content?.isDormant !== true) return;
    const draft = new TransactionDraft();
    draft.add("table", { kind: "add-table", comment: TABLE_COMMENT });
    await this.#committer.commit(draft);
  }

  /** Reads the table, and with it all changes by other programs up to then. */
  async #read(expected?: NftExpectation): Promise<NftTableContent | undefined> {
    this.#readAt = await this.#options.nft.mark();
    const content = await this.#options.nft.read(expected);
    this.#damage.read((content ?? this.#readAt).generation);
    return content;
  }

  async #formerEndpoints(
    content: NftTableContent,
    wanted: WantedTable,
    { wantsFormerEndpoints }: SyncInput,
  ): Promise<FormerEndpoint[]> {
    if (wantsFormerEndpoints?.() !== true) return [];
    return formerEndpoints(content, wanted, this.#options.nft).catch((error: unknown) => {
      const message = "Cannot read where the rules led: connections to endpoints that left meanwhile are not ended";
      this.#options.log.error(message, error);
      return [];
    });
  }

  #noteForeign(content: NftTableContent | undefined): void {
    const foreign = content === undefined ? [] : foreignBaseChains(content);
    if (foreign.some((name) => !this.#foreign.includes(name))) {
      const chains = someOf(foreign);
      this.#options.log.warn("Packets pass chains of other programs in our nftables table; they are left alone", {
        chains,
      });
    }
    this.#foreign = foreign;
  }
}
