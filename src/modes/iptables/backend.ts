/**
 * The iptables mode for one address family: plans what changed, sends the diff, and remembers what the kernel holds.
 * Reference iptables.md §8, iptables-operation.md §9, §11, §12.
 */

import { isDeepStrictEqual } from "../../async/node-util.ts";
import { sortedKeys } from "../../async/sorted-keys.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { Backend, FormerEndpoint, LostRules, SyncInput, SyncOutcome } from "../../contract/backend.ts";
import { hashProgramText } from "../../kernel/iptables/hash-program.ts";
import { type Iptables, isAttributable, type Presence } from "../../kernel/iptables/iptables.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import {
  chainLines,
  deletionLines,
  ruleArguments,
  ruleLines,
  transactionText,
} from "../../kernel/iptables/rule-text.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Nfacct } from "../../kernel/nfacct/nfacct.ts";
import type { Logger } from "../../logging/logger.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { CommitCost } from "../shared/commit-cost.ts";
import type { RestoreMetrics, RuleCountMetrics } from "../shared/iptables-metrics.ts";
import { CHAINS, isServiceChain } from "../shared/iptables-rules/chain-names.ts";
import { ensureJumps } from "../shared/iptables-rules/ensure-jumps.ts";
import { OwnedRules } from "../shared/iptables-rules/owned-rules.ts";
import { declaredChains, spell } from "../shared/iptables-rules/owner-rules.ts";
import { staleChainOf, type WrittenRules } from "../shared/iptables-rules/payload.ts";
import { equalStaticRules, type StaticPlan } from "../shared/iptables-rules/rules-plan.ts";
import { endpointsIn, readSaved } from "../shared/iptables-rules/saved-rules.ts";
import { JUMP_RULES } from "../shared/iptables-rules/top-level-rules.ts";
import type { DesiredPort, UnplannedPort } from "../shared/iptables-rules/transactions.ts";
import { UNKNOWN_ADDRESSES } from "../shared/unknown-addresses.ts";
import { ChainCheck, type WrittenChains } from "./chain-check.ts";
import { COUNTERS, LARGE_CLUSTER_ENDPOINTS, type PlanConfig, type PlanFacts } from "./plan-options.ts";
import { planServicePort } from "./plan-service-port.ts";
import { planStatic } from "./plan-static.ts";

const LOGGED_CHAINS = 10;
/** There while a rule with a hash is tried; like other chains of Services, a full sync deletes what is left of it. */
const HASH_TRIAL = "KUBE-SVC-HASHTRIAL";
/**
 * The fastest for iptables-nft-restore at 10,000 Services (docs/performance.md): `first` while nothing jumps to our chains,
 * `again` over existing rules, where the kernel checks all paths at each commit. Smaller syncs are one transaction.
 */
const PORTS_PER_TRANSACTION = { first: 100, again: 500 } as const;

/** This mode's metrics for one family (reference iptables-operation.md §14). */
export interface IptablesMetrics extends RestoreMetrics, RuleCountMetrics {
  readonly partialRestoreFailures: { inc(): void };
  setLast(table: "filter" | "nat", rules: number): void;
}

/** Watches for changes by other programs; resolves when the signal aborts (`kernel/iptables/canary-monitor.ts`). */
type Monitor = (isIntact: () => Promise<Presence>, onLost: () => void, signal: AbortSignal) => Promise<void>;

export interface IptablesBackendOptions {
  readonly config: PlanConfig;
  readonly iptables: Iptables;
  /** Undefined if the kernel has no accounting objects. */
  readonly counters: Pick<Nfacct, "ensure"> | undefined;
  /** Called on every sync. Resolves to undefined if the host's addresses cannot be read. */
  readonly nodePortIPs: () => Promise<NodePortIPs | undefined>;
  readonly metrics: IptablesMetrics;
  readonly monitor: Monitor;
  readonly log: Logger;
  /** Time between two checks of the chains in the kernel. @default such that checks take a twentieth of the time */
  readonly checkPeriodMs?: number;
  /** Monotonic. @default performance.now */
  readonly nowMs?: () => number;
  /** @default LARGE_CLUSTER_ENDPOINTS */
  readonly largeClusterEndpoints?: number;
  /** Syncs of more ports or stale chains are split, where the tools prefer it. @default PORTS_PER_TRANSACTION */
  readonly portsPerTransaction?: number;
}

export class IptablesBackend implements Backend {
  readonly mode = "iptables";
  readonly family;
  readonly #options: IptablesBackendOptions;
  readonly #rules: OwnedRules;
  readonly #chainCheck: ChainCheck;
  readonly #cost = new CommitCost();
  readonly #waits = new KernelWaits();
  readonly #nowMs: () => number;
  /** Number of sync starts and ends. If it changes during a read from the kernel, the result is discarded. */
  #turns = 0;
  #onLost: (lost?: LostRules) => void = () => {};
  #counters = { ctStateInvalid: false, localhostNodePorts: false };
  /** Undefined until a Service asks for a hash. */
  #canHash: boolean | undefined;
  #isLargeCluster = false;
  /** The last sync's facts; the same object as long as nothing changes. */
  #facts: PlanFacts | undefined;
  /** Endpoints of an earlier process's rules, from the first full sync on. */
  #former: FormerEndpoint[] | undefined;
  /** Whether the last attempt to read the node's addresses succeeded. */
  #knowsAddresses = true;

  constructor(given: IptablesBackendOptions) {
    const options = { ...given, iptables: this.#waits.timed(given.iptables) };
    this.#options = options;
    this.family = options.config.family;
    const { nowMs = () => performance.now(), checkPeriodMs = Number.POSITIVE_INFINITY } = options;
    this.#nowMs = nowMs;
    this.#rules = new OwnedRules(options);
    this.#chainCheck = new ChainCheck(options.iptables, nowMs, checkPeriodMs);
  }

  /** Large clusters skip the hourly full sync (iptables.md §8). */
  get skipsPeriodicFullSync(): boolean {
    return this.#isLargeCluster;
  }

  /** How soon the next sync may start, depending on the cost of previous syncs. */
  get restMs(): number {
    return this.#cost.restMs(this.#nowMs());
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#turns += 1;
    this.#waits.begin();
    try {
      return await this.#sync(input, signal);
    } finally {
      this.#turns += 1;
    }
  }

  async #sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#isLargeCluster = input.endpointCount > (this.#options.largeClusterEndpoints ?? LARGE_CLUSTER_ENDPOINTS);
    const startMs = this.#nowMs();
    if (!input.isFullSync && this.#rules.plan !== undefined) {
      const outcome = await this.#partialSync(input, this.#rules.plan);
      if (outcome !== undefined) {
        this.#cost.note(input.changedPorts.size, this.#nowMs() - startMs, this.#nowMs());
        return outcome;
      }
    }
    try {
      return { ...(await this.#fullSync(input, signal)), wasFull: true };
    } finally {
      this.#cost.spend(this.#nowMs() - startMs, this.#nowMs());
    }
  }

  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal): Promise<void> {
    this.#onLost = onLost;
    await this.#options.monitor(() => this.#isIntact(), onLost, signal);
  }

  async #factsFor(input: SyncInput): Promise<PlanFacts> {
    const nodePortIPs = await this.#options.nodePortIPs();
    this.#knowsAddresses = nodePortIPs !== undefined;
    const facts: PlanFacts = {
      zone: input.zone,
      nodePortIPs: nodePortIPs ?? this.#facts?.nodePortIPs ?? { kind: "ips", ips: [] },
      counters: this.#counters,
      canHash: this.#canHash,
      isLargeCluster: this.#isLargeCluster,
    };
    if (this.#facts === undefined || !isDeepStrictEqual(this.#facts, facts)) this.#facts = facts;
    return this.#facts;
  }

  /** Sends only the changed ports. Resolves to undefined if a full sync is needed instead. */
  async #partialSync(input: SyncInput, installed: StaticPlan): Promise<SyncOutcome | undefined> {
    const before = this.#facts;
    await this.#tryHashes(Array.from(input.changedPorts, (owner) => input.services.get(owner)));
    const facts = await this.#factsFor(input);
    if (facts !== before && !equalStaticRules(planStatic(this.#options.config, facts), installed)) return undefined;
    const desired = (owner: string): DesiredPort | UnplannedPort | undefined => {
      const port = input.services.get(owner);
      return port && this.#desired(port, input, facts);
    };
    const written = await this.#rules.change(input.changedPorts, desired, this.#portsPerTransaction("again"));
    return written && this.#outcome(input, written);
  }

  #desired(port: ServicePort, { endpoints }: SyncInput, facts: PlanFacts): DesiredPort | UnplannedPort {
    const { name } = port;
    try {
      return { name, rules: spell(planServicePort(port, endpoints.get(name.key) ?? [], this.#options.config, facts)) };
    } catch (error) {
      // No rule can contain the name.
      if (!(error instanceof RangeError)) throw error;
      return { name, reason: error.message };
    }
  }

  async #fullSync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const { iptables, config } = this.#options;
    this.#rules.forget();
    // Read the last known good filter rules first: filter is committed before the kernel can reject nat.
    const savedFilter = await this.#readable(
      "Failed to execute iptables-save: rules that are refused may be lost",
      () => readSaved(iptables, "filter"),
    );
    const natChains = await this.#readable(
      "Failed to list the chains of table nat: stale ones will not be deleted", // before the next full sync
      () => iptables.chainNames("nat"),
    );
    await ensureJumps(iptables, { filter: savedFilter, natChains }, JUMP_RULES);
    await this.#ensureCounters();
    await this.#tryHashes(input.services.values());
    const facts = await this.#factsFor(input);
    const existing = new Set(natChains?.filter(isServiceChain));
    const isNew = existing.size === 0;
    const ports = new Map<string, DesiredPort>();
    const unplanned = new Map<string, UnplannedPort>();
    for (const key of await sortedKeys(input.services, signal)) {
      const port = input.services.get(key);
      const desired = port && this.#desired(port, input, facts);
      if (desired !== undefined && "rules" in desired) {
        ports.set(key, desired);
        for (const chain of declaredChains(desired.rules.ownChains)) existing.delete(chain);
      } else if (desired !== undefined) unplanned.set(key, desired);
      if (isTurnDue()) await giveTurn(signal);
    }
    this.#former ??= await this.#formerEndpoints(existing, input);
    const portsPerTransaction = this.#portsPerTransaction(isNew ? "first" : "again");
    const isSplit = portsPerTransaction !== undefined && Math.max(ports.size, existing.size) > portsPerTransaction;
    const written = await this.#rules.replace({
      plan: planStatic(config, facts),
      ports,
      unplanned,
      staleChains: [...existing],
      savedFilter,
      ...(isSplit && { portsPerTransaction }),
    });
    this.#chainCheck.forget();
    return this.#outcome(input, written);
  }

  /** Where the chains of an earlier process lead that are no longer wanted. */
  async #formerEndpoints(stale: ReadonlySet<string>, input: SyncInput): Promise<FormerEndpoint[]> {
    if (stale.size === 0 || input.wantsFormerEndpoints?.() !== true) return [];
    const failureText = "Failed to execute iptables-save: connections to endpoints that left meanwhile are not ended";
    const nat = await this.#readable(failureText, () => readSaved(this.#options.iptables, "nat"));
    return nat === undefined ? [] : [...endpointsIn(nat, stale)];
  }

  /** Undefined: everything in one transaction. */
  #portsPerTransaction(when: keyof typeof PORTS_PER_TRANSACTION): number | undefined {
    const { iptables, portsPerTransaction = PORTS_PER_TRANSACTION[when] } = this.#options;
    return iptables.prefersSmallTransactions ? portsPerTransaction : undefined;
  }

  /** Program the kernel even if it cannot be read. */
  async #readable<T>(failureText: string, read: () => Promise<T>): Promise<T | undefined> {
    try {
      return await read();
    } catch (error) {
      this.#options.log.error(failureText, error);
      return undefined;
    }
  }

  #outcome({ services, endpointCount }: SyncInput, { filter, nat }: WrittenRules): SyncOutcome {
    this.#options.log.v(2, "Reloading service iptables data", {
      numServices: services.size,
      numEndpoints: endpointCount,
      numFilterRules: filter,
      numNATRules: nat,
    });
    const { installed, failures } = this.#rules;
    const { metrics } = this.#options;
    for (const [table, last] of [
      ["filter", filter],
      ["nat", nat],
    ] as const) {
      metrics.setTotal(table, installed.ruleCounts[table]);
      metrics.setLast(table, last);
    }
    return {
      failures: [...failures.values(), ...(this.#knowsAddresses ? [] : [UNKNOWN_ADDRESSES])],
      formerEndpoints: this.#former?.splice(0) ?? [],
      written: { counts: { "rules in filter": filter, "rules in nat": nat }, kernelMs: this.#waits.ms },
    };
  }

  /** Rules may name a counter only once it exists (iptables-operation.md §12.2). Deletes none: other programs share them. */
  async #ensureCounters(): Promise<void> {
    const { counters } = this.#options;
    if (counters === undefined) return;
    this.#counters = {
      ctStateInvalid: await counters.ensure(COUNTERS.ctStateInvalid),
      localhostNodePorts: await counters.ensure(COUNTERS.localhostNodePorts),
    };
  }

  /** Tries a rule with a hash where a port asks for one: a refused rule would take the others of its transaction with it. */
  async #tryHashes(ports: Iterable<ServicePort | undefined>): Promise<void> {
    if (this.#canHash !== undefined || ![...ports].some((port) => port?.balancing !== undefined)) return;
    const { config, iptables, log } = this.#options;
    const code = hashProgramText({ family: config.family, isFlow: true, seed: config.hashSeed, below: 1 });
    const rule: Rule = { chain: HASH_TRIAL, matches: [{ kind: "bytecode", code }], target: { kind: "return" } };
    const added = chainLines([HASH_TRIAL]) + ruleLines("append", [rule]);
    const removed = chainLines([HASH_TRIAL]) + deletionLines([HASH_TRIAL]);
    try {
      await iptables.restore([transactionText("nat", added), transactionText("nat", removed)]);
      this.#canHash = true;
    } catch (error) {
      if (!isAttributable(error)) throw error;
      this.#canHash = false;
      log.error("No rule can match a hash: Services that ask for one have their endpoints at random", error, {
        remedy: "load the kernel module xt_bpf, and install the bpf extension of iptables; then start again",
      });
    }
  }

  /** Whether the static rules are still in the kernel. Detects a flush that keeps the chains, including canaries. */
  async #isIntact(): Promise<Presence> {
    if (this.#rules.plan === undefined) return "unknown";
    const { iptables } = this.#options;
    // In filter, one jump stands for all of INPUT and one for all of OUTPUT: every check costs a process.
    const jumps = JUMP_RULES.filter(
      ({ table, rule, target }) => table === "nat" || rule.chain === "FORWARD" || target === CHAINS.proxyFirewall,
    );
    for (const { table, rule } of jumps) {
      const presence = await iptables.rulePresence(table, rule.chain, ruleArguments(rule));
      if (presence !== "present") return presence;
    }
    return await this.#checkChains();
  }

  /** The kernel may have older rules for owners that it rejected. */
  #writtenChains(): WrittenChains {
    const { installed, failures: refused } = this.#rules;
    // A stale chain that could not be deleted has no rules in shared chains.
    const isUnsure = [...refused.keys()].some((owner) => staleChainOf(owner) === undefined);
    const ports = [...installed].filter(([owner]) => !refused.has(owner));
    return { ports, shared: isUnsure ? { filter: undefined, nat: undefined } : installed.chains };
  }

  /** Requests a repair if only few service ports' chains are damaged; resolves to "absent" if there is more damage. */
  async #checkChains(): Promise<Presence> {
    const turns = this.#turns;
    // Odd while a sync runs, which changes the expected chains.
    if (turns % 2 === 1) return "present";
    const damage = await this.#chainCheck.find(
      () => this.#writtenChains(),
      () => turns === this.#turns,
    );
    if (damage === undefined) return "present";
    const { chains, owners, isTotal, isNew } = damage;
    const facts = { chains: chains.slice(0, LOGGED_CHAINS).join(", "), count: chains.length };
    if (isNew) this.#options.log.warn("Another program changed our iptables rules; repairing them", facts);
    if (isTotal) return "absent";
    this.#onLost({ ports: owners });
    return "present";
  }
}
