/**
 * The iptables mode for one address family: plans what changed, sends the difference, remembers what the kernel holds.
 * Reference iptables.md §8, iptables-operation.md §9, §11, §12.
 */

import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import { type Iptables, IptablesRestoreError, type Presence } from "../../kernel/iptables/iptables.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import { ruleArguments } from "../../kernel/iptables/rule-text.ts";
import type { Logger } from "../../logging/logger.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { Backend, LostRules, SyncFailure, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import { CommitCost } from "../shared/commit-cost.ts";
import { bisectChanges } from "../shared/iptables-rules/bisect-changes.ts";
import { isServiceChain } from "../shared/iptables-rules/chain-names.ts";
import { ensureJumps } from "../shared/iptables-rules/ensure-jumps.ts";
import {
  deltaPayload,
  type OwnerChange,
  removalOf,
  staleChainOf,
  type WrittenRules,
} from "../shared/iptables-rules/payload.ts";
import {
  appendLines,
  countOf,
  type InstalledRules,
  installed,
  listOf,
  type PortRules,
  spellPlan,
} from "../shared/iptables-rules/port-rules.ts";
import { isAttributable, send } from "../shared/iptables-rules/restore.ts";
import type { StaticPlan } from "../shared/iptables-rules/rules-plan.ts";
import { JUMP_RULES } from "../shared/iptables-rules/top-level-rules.ts";
import { applyFull, type DesiredPort, STATIC_RULES } from "../shared/iptables-rules/transactions.ts";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { ChainCheck } from "./chain-check.ts";
import { readExisting } from "./existing-rules.ts";
import { COUNTERS, LARGE_CLUSTER_ENDPOINTS, type PlanConfig, type PlanFacts } from "./plan-options.ts";
import { planServicePort } from "./plan-service-port.ts";
import { planStatic } from "./plan-static.ts";
import { NO_STATIC_CHAINS, staticChainsOf, writtenChains } from "./written-chains.ts";

const LOGGED_CHAINS = 10;
/** Refused restores that one partial sync puts up with while it tries refused parts again. */
const MAX_REFUSALS = 32;
/**
 * Measured best for iptables-nft-restore at 10,000 services (docs/performance.md): when nothing leads to our chains yet, and
 * over existing rules, where the kernel checks all paths at each commit. Smaller clusters stay in one piece.
 */
const PORTS_PER_TRANSACTION = { first: 100, again: 500 } as const;

/** The measurements of this mode (reference iptables-operation.md §14), one family. */
export interface IptablesMetrics {
  /** Refused or failed iptables-restore. */
  readonly restoreFailures: { inc(): void };
  readonly partialRestoreFailures: { inc(): void };
  setTotal(table: "filter" | "nat", rules: number): void;
  setLast(table: "filter" | "nat", rules: number): void;
}

/** Named packet counters of the kernel (reference iptables-operation.md §12.2). */
export interface CounterStore {
  /** Creates the counter if missing; resolves to whether it exists now. Never rejects. */
  ensure(name: string): Promise<boolean>;
}

/** Watches for foreign hands; resolves when the signal aborts (`kernel/iptables/canary-monitor.ts`). */
export type Monitor = (isIntact: () => Promise<Presence>, onLost: () => void, signal: AbortSignal) => Promise<void>;

export interface IptablesBackendOptions {
  readonly config: PlanConfig;
  readonly iptables: Iptables;
  /** Undefined when the kernel has no accounting objects. */
  readonly counters: CounterStore | undefined;
  /** Asked on every sync. Resolves to undefined when the host's addresses cannot be read. */
  readonly nodePortIPs: () => Promise<NodePortIPs | undefined>;
  readonly metrics: IptablesMetrics;
  readonly monitor: Monitor;
  readonly log: Logger;
  /** How often the chains in the kernel should be compared. @default as often as takes a twentieth of the time */
  readonly checkPeriodMs?: number;
  /** Monotonic. @default performance.now */
  readonly nowMs?: () => number;
  /** @default LARGE_CLUSTER_ENDPOINTS */
  readonly largeClusterEndpoints?: number;
  /** Full syncs of more ports than this come in pieces, where the tools like it. @default PORTS_PER_TRANSACTION */
  readonly portsPerTransaction?: number;
  /** When long computations give way. @default every 10 ms */
  readonly yielder?: Yielder;
}

export class IptablesBackend implements Backend {
  readonly mode = "iptables";
  readonly family;
  readonly #options: IptablesBackendOptions;
  readonly #yielder: Yielder;
  readonly #known = new Map<string, InstalledRules>();
  #totals = { filter: 0, nat: 0, internal: 0, external: 0 };
  /** Text of the static rules in the kernel; undefined when the kernel is not known to match memory. */
  #staticText: string | undefined;
  #staticCounts: WrittenRules = { filter: 0, nat: 0 };
  /** By owner: entries in filter from before a partial sync that failed; until a full sync succeeds. */
  #filterBefore: ReadonlyMap<string, string> = new Map();
  readonly #refused = new RefusedPorts();
  #staticChains = NO_STATIC_CHAINS;
  readonly #chainCheck: ChainCheck;
  readonly #cost = new CommitCost();
  readonly #nowMs: () => number;
  /** Syncs that began or ended: what was read from the kernel in between does not count. */
  #turns = 0;
  #onLost: (lost?: LostRules) => void = () => {};
  #counters = { ctStateInvalid: false, localhostNodePorts: false };
  #isLargeCluster = false;

  constructor(options: IptablesBackendOptions) {
    this.#options = options;
    this.family = options.config.family;
    const { nowMs = () => performance.now(), checkPeriodMs = Number.POSITIVE_INFINITY } = options;
    this.#nowMs = nowMs;
    this.#chainCheck = new ChainCheck(options.iptables, nowMs, checkPeriodMs);
    this.#yielder = options.yielder ?? new SliceYielder();
  }

  /** Large clusters go without the hourly full sync (iptables.md §8). */
  get skipsPeriodicFullSync(): boolean {
    return this.#isLargeCluster;
  }

  /** How long to wait with the next sync, in view of what those before it took. */
  get restMs(): number {
    return this.#cost.restMs(this.#nowMs());
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#turns += 1;
    try {
      return await this.#sync(input, signal);
    } finally {
      this.#turns += 1;
    }
  }

  async #sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#isLargeCluster = input.endpointCount > (this.#options.largeClusterEndpoints ?? LARGE_CLUSTER_ENDPOINTS);
    const startMs = this.#nowMs();
    if (!input.isFullSync && this.#staticText !== undefined) {
      const outcome = await this.#partialSync(input);
      if (outcome !== undefined) {
        this.#cost.note(input.changedPorts.size, this.#nowMs() - startMs, this.#nowMs());
        return outcome;
      }
    }
    try {
      return await this.#fullSync(input, signal);
    } finally {
      this.#cost.spend(this.#nowMs() - startMs, this.#nowMs());
    }
  }

  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal): Promise<void> {
    this.#onLost = onLost;
    await this.#options.monitor(() => this.#isIntact(), onLost, signal);
  }

  async #facts(input: SyncInput): Promise<PlanFacts> {
    const nodePortIPs = await this.#options.nodePortIPs();
    return {
      zone: input.zone,
      nodePortIPs: nodePortIPs ?? { kind: "ips", ips: [] },
      counters: this.#counters,
      isLargeCluster: this.#isLargeCluster,
    };
  }

  #plan(port: ServicePort, input: SyncInput, facts: PlanFacts): PortRules {
    const endpoints = input.endpoints.get(port.name.key) ?? [];
    return spellPlan(planServicePort(port, endpoints, this.#options.config, facts));
  }

  /** Sends the changed ports only. Resolves to undefined when a full sync must take over. */
  async #partialSync(input: SyncInput): Promise<SyncOutcome | undefined> {
    const facts = await this.#facts(input);
    if (staticTextOf(planStatic(this.#options.config, facts)) !== this.#staticText) return undefined;
    const changes: OwnerChange[] = [];
    // A full sync may have been refused parts that nobody had asked to change.
    for (const key of new Set([...input.changedPorts, ...this.#refused.owners])) {
      const chain = staleChainOf(key);
      if (chain !== undefined) {
        changes.push(removalOf(chain));
        continue;
      }
      const before = this.#known.get(key);
      const port = input.services.get(key);
      if (port === undefined) {
        if (before !== undefined) changes.push({ owner: key, before });
        else this.#refused.forget(key);
        continue;
      }
      let after: PortRules;
      try {
        after = this.#plan(port, input, facts);
      } catch (error) {
        if (error instanceof RangeError) return undefined;
        throw error;
      }
      changes.push(before === undefined ? { owner: key, after } : { owner: key, before, after });
    }
    try {
      const written = await this.#applyPartial(changes);
      this.#report(input, written);
      return this.#outcome(this.#refused.failures);
    } catch (error) {
      this.#staticText = undefined;
      this.#options.metrics.restoreFailures.inc();
      this.#options.metrics.partialRestoreFailures.inc();
      // The change may be in force in filter, which comes before nat: only we know what was there.
      this.#filterBefore = new Map(changes.map(({ owner, before }) => [owner, before?.filterShared ?? ""]));
      if (!isAttributable(error)) throw error;
      this.#options.log.error("Partial sync was refused, rewriting all rules", error);
      return undefined;
    }
  }

  /**
   * Parts that were refused before are tried once more, after the others and apart from them: one bad service must not
   * make every later change a rewriting of the whole cluster.
   */
  async #applyPartial(changes: readonly OwnerChange[]): Promise<WrittenRules> {
    const { iptables, metrics } = this.#options;
    const others = changes.filter(({ owner }) => !this.#refused.has(owner));
    const written = await send(iptables, deltaPayload(others));
    for (const { owner, after } of others) this.#remember(owner, after === undefined ? undefined : installed(after));
    if (others.length === changes.length) return written;
    const again = changes.filter(({ owner }) => this.#refused.has(owner));
    const result = await bisectChanges(iptables, again, {
      onRefused: () => metrics.restoreFailures.inc(),
      maxRefusals: MAX_REFUSALS,
    });
    for (const [owner, rules] of result.states) this.#remember(owner, rules);
    for (const owner of result.accepted) this.#refused.forget(owner);
    for (const [owner, reason] of result.refused) this.#refused.refuse(owner, reason);
    return { filter: written.filter + result.written.filter, nat: written.nat + result.written.nat };
  }

  async #fullSync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const { iptables, metrics, config } = this.#options;
    this.#staticText = undefined;
    const { savedFilter, natChains } = await readExisting(iptables, this.#options.log);
    await ensureJumps(iptables, { filter: savedFilter, natChains }, JUMP_RULES);
    await this.#ensureCounters();
    const facts = await this.#facts(input);
    const existing = new Set(natChains?.filter(isServiceChain));
    const isFirst = existing.size === 0;
    const plan = planStatic(config, facts);
    const ports = new Map<string, DesiredPort>();
    const unplanned = new Map<string, { name: ServicePort["name"]; reason: string }>();
    const yielder = this.#yielder;
    for (const key of [...input.services.keys()].sort()) {
      const port = input.services.get(key);
      if (port === undefined) continue;
      try {
        ports.set(key, { name: port.name, rules: this.#plan(port, input, facts) });
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        unplanned.set(key, { name: port.name, reason: error.message });
      }
      if (yielder.isDue()) await yielder.turn(signal);
    }
    for (const { rules } of ports.values()) for (const chain of listOf(rules.ownChains)) existing.delete(chain);
    const portsPerTransaction = this.#options.portsPerTransaction ?? PORTS_PER_TRANSACTION[isFirst ? "first" : "again"];
    const isSplit = iptables.prefersSmallTransactions && ports.size > portsPerTransaction;
    try {
      const result = await applyFull(iptables, {
        plan,
        ports,
        unplanned,
        staleChains: [...existing],
        savedFilter,
        filterBefore: this.#filterBefore,
        ...(isSplit && { portsPerTransaction }),
        onRefused: (error) => {
          metrics.restoreFailures.inc();
          this.#options.log.error("Failed to execute iptables-restore", error);
        },
      });
      this.#filterBefore = new Map();
      this.#known.clear();
      this.#totals = { filter: 0, nat: 0, internal: 0, external: 0 };
      for (const [owner, rules] of result.installed) this.#remember(owner, rules);
      this.#staticCounts = {
        filter: plan.filterHead.length + plan.filterTail.length,
        nat: plan.natHead.length + plan.natTail.length,
      };
      this.#staticChains = staticChainsOf(plan);
      this.#chainCheck.forget();
      this.#refused.replace(result.failures);
      this.#staticText = result.failures.has(STATIC_RULES) ? undefined : staticTextOf(plan);
      this.#report(input, result.written);
      return this.#outcome(this.#refused.failures);
    } catch (error) {
      if (error instanceof IptablesRestoreError && !isAttributable(error)) metrics.restoreFailures.inc();
      throw error;
    }
  }

  #outcome(failures: readonly SyncFailure[]): SyncOutcome {
    const { internal, external } = this.#totals;
    return { failures, noLocalEndpoints: { internal, external } };
  }

  #remember(owner: string, rules: InstalledRules | undefined): void {
    const old = this.#known.get(owner);
    if (old !== undefined) this.#count(old, -1);
    if (rules === undefined) this.#known.delete(owner);
    else {
      this.#known.set(owner, rules);
      this.#count(rules, 1);
    }
  }

  #count(rules: InstalledRules, sign: 1 | -1): void {
    this.#totals.filter += sign * countOf(rules.filterShared);
    this.#totals.nat += sign * (countOf(rules.natShared) + rules.ownRuleCount);
    if (rules.lacksInternal) this.#totals.internal += sign;
    if (rules.lacksExternal) this.#totals.external += sign;
  }

  #report(input: SyncInput, written: WrittenRules): void {
    this.#options.log.v(2, "Reloading service iptables data", {
      numServices: input.services.size,
      numEndpoints: input.endpointCount,
      numFilterRules: written.filter,
      numNATRules: written.nat,
    });
    for (const table of ["filter", "nat"] as const) {
      this.#options.metrics.setTotal(table, this.#totals[table] + this.#staticCounts[table]);
      this.#options.metrics.setLast(table, written[table]);
    }
  }

  /** Rules name a counter only once it exists (iptables-operation.md §12.2); others of the host share them, so none is deleted. */
  async #ensureCounters(): Promise<void> {
    const { counters } = this.#options;
    if (counters === undefined) return;
    this.#counters = {
      ctStateInvalid: await counters.ensure(COUNTERS.ctStateInvalid),
      localhostNodePorts: await counters.ensure(COUNTERS.localhostNodePorts),
    };
  }

  /** Whether the static rules are still in the kernel: sees a flush that leaves the chains, canaries included. */
  async #isIntact(): Promise<Presence> {
    if (this.#staticText === undefined) return "unknown";
    const { iptables } = this.#options;
    const jumps = JUMP_RULES.filter(({ table, rule }) => table === "nat" || rule.chain === "FORWARD");
    for (const { table, rule } of jumps) {
      const presence = await iptables.rulePresence(table, rule.chain, ruleArguments(rule));
      if (presence !== "present") return presence;
    }
    return await this.#checkChains();
  }

  /** Has damaged chains of few service ports written again; "absent" when more than these is damaged. */
  async #checkChains(): Promise<Presence> {
    const turns = this.#turns;
    // Odd while a sync runs, which changes what it would be compared with.
    if (turns % 2 === 1) return "present";
    const written = () => writtenChains(this.#known, this.#refused, this.#staticChains);
    const damage = await this.#chainCheck.find(written, () => turns === this.#turns);
    if (damage === undefined) return "present";
    const { chains, owners, isTotal, isNew } = damage;
    const facts = { chains: chains.slice(0, LOGGED_CHAINS).join(", "), count: chains.length };
    if (isNew) this.#options.log.warn("Somebody else changed our iptables rules; repairing them", facts);
    if (isTotal) return "absent";
    this.#onLost({ ports: owners });
    return "present";
  }
}

function staticTextOf(plan: StaticPlan): string {
  const rules: readonly Rule[] = [...plan.filterHead, ...plan.filterTail, ...plan.natHead, ...plan.natTail];
  return appendLines(rules);
}
