/** A history of one address family: the objects as a source holds them, the model, the backend, and what must be there. */

import type { SyncOutcome } from "../../src/contract/backend.ts";
import type { Iptables } from "../../src/kernel/iptables/iptables.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import type { NodePortIPs } from "../../src/model/node-port-addresses.ts";
import { ProxyState } from "../../src/model/proxy-state.ts";
import type { ServicePortName } from "../../src/model/service-port-name.ts";
import { ip } from "../../src/model/testing/records.ts";
import { IptablesBackend } from "../../src/modes/iptables/backend.ts";
import { COUNTERS, type PlanConfig } from "../../src/modes/iptables/plan-options.ts";
import type { Cidr, IpFamily } from "../../src/net/ip.ts";
import { SyncDriver } from "../../testkit/dataplane/sync-driver.ts";
import { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import { NODE_NAME, type Step } from "./cluster-arbitrary.ts";
import { ObjectHistory } from "./object-history.ts";

/** What varies among histories but not within one. */
export interface HistoryOptions {
  readonly family: IpFamily;
  readonly detector: "cidr" | "interface" | "none";
  readonly masqueradeAll: boolean;
  readonly localhostNodePorts: boolean;
  readonly hasCounters: boolean;
  /** Small, so that histories cross it; undefined for upstream's. */
  readonly largeClusterEndpoints: number | undefined;
  /** Small, so that full syncs come in pieces on the nft back end; undefined for the program's own. */
  readonly portsPerTransaction: number | undefined;
}

export const COUNTER_NAMES: ReadonlySet<string> = new Set(Object.values(COUNTERS));

const NODE_ADDRESSES = {
  IPv4: { node: "10.200.0.2", loopback: "127.0.0.1", pods: "10.180.0.0/16" },
  IPv6: { node: "fd00:200::2", loopback: "::1", pods: "fd00:180::/32" },
} as const;

export function configOf(options: HistoryOptions): PlanConfig {
  const { family, detector, masqueradeAll } = options;
  const { node, pods } = NODE_ADDRESSES[family];
  return {
    family,
    nodeName: NODE_NAME,
    nodeIP: ip(node),
    masqueradeMark: 1 << 14,
    hashSeed: 1,
    masqueradeAll,
    detector:
      detector === "cidr"
        ? { kind: "cidr", cidr: pods as Cidr }
        : detector === "interface"
          ? { kind: "interface", name: "cni0" }
          : { kind: "none" },
    localhostNodePorts: family === "IPv4" && options.localhostNodePorts,
    conntrackLiberal: false,
  };
}

interface RuleTotals {
  filter: number;
  nat: number;
}

export class ClusterHistory {
  readonly #options: HistoryOptions;
  readonly objects = new ObjectHistory();
  readonly #state: ProxyState;
  readonly #backend: IptablesBackend;
  readonly #driver: SyncDriver;
  #addresses = 0;
  /** Latest of the gauges `…_iptables_total`. */
  readonly totals: RuleTotals = { filter: 0, nat: 0 };
  /** What the backend reported as refused, of all syncs. */
  restoreFailures = 0;

  constructor(options: HistoryOptions, iptables: Iptables) {
    this.#options = options;
    this.#state = this.#newState();
    this.#driver = new SyncDriver(this.#state);
    this.#backend = this.#newBackend(iptables, this.totals, options.portsPerTransaction);
  }

  /** Does everything but syncs. */
  apply(step: Exclude<Step, { kind: "sync" }>): void {
    switch (step.kind) {
      case "write-service":
      case "delete-service":
      case "write-slice":
      case "delete-slice":
        this.objects.apply(step, this.#state);
        return;
      case "zone":
        if (step.zone !== this.#driver.zone) this.#driver.requireFullSync();
        this.#driver.zone = step.zone;
        return;
      case "addresses":
        this.#addresses = step.index;
    }
  }

  /** The tables were flushed: the monitor would say so. */
  loseRules(): void {
    this.#driver.lose();
  }

  /** One turn of the proxier. Rejects when nothing could be programmed. */
  sync(full: boolean): Promise<SyncOutcome> {
    this.#driver.touch(this.#state.applyChanges().changedPorts);
    return this.#driver.sync(this.#backend, { full });
  }

  /** What one full sync of the same objects leaves in an empty kernel; with the counts that it reports. */
  async fromScratch(): Promise<{ readonly kernel: MemoryIptables; readonly totals: RuleTotals }> {
    const state = this.#newState();
    for (const object of this.objects.services.byKey.values()) state.onService({ kind: "add", object });
    for (const object of this.objects.slices.byKey.values()) state.onEndpointSlice({ kind: "add", object });
    state.applyChanges();
    const driver = new SyncDriver(state);
    driver.zone = this.#driver.zone;
    const kernel = this.newKernel();
    const totals: RuleTotals = { filter: 0, nat: 0 };
    const outcome = await driver.sync(this.#newBackend(kernel, totals, undefined));
    if (outcome.failures.length > 0) throw new Error(`refused from scratch: ${JSON.stringify(outcome.failures)}`);
    return { kernel, totals };
  }

  newKernel(backEnd: "nft" | "legacy" = "nft"): MemoryIptables {
    const { family, hasCounters } = this.#options;
    const counters = hasCounters ? COUNTER_NAMES : new Set<string>();
    return new MemoryIptables(family, { counters, backEnd });
  }

  get zone(): string | undefined {
    return this.#driver.zone;
  }

  /** The service ports that must be served now. */
  get servicePorts(): readonly ServicePortName[] {
    return [...this.#state.services.values()].map(({ name }) => name);
  }

  #newState(): ProxyState {
    const { family } = this.#options;
    return new ProxyState({ family, nodeName: NODE_NAME, allowExternalIPs: true, now: () => 0, log: silentLogger });
  }

  get nodePortIPs(): NodePortIPs {
    const { node, loopback } = NODE_ADDRESSES[this.#options.family];
    return this.#addresses === 0 ? { kind: "all" } : { kind: "ips", ips: [ip(loopback), ip(node)] };
  }

  #newBackend(iptables: Iptables, totals: RuleTotals, portsPerTransaction: number | undefined): IptablesBackend {
    const { hasCounters, largeClusterEndpoints } = this.#options;
    return new IptablesBackend({
      config: configOf(this.#options),
      iptables,
      counters: hasCounters ? { ensure: async () => true } : undefined,
      nodePortIPs: async () => this.nodePortIPs,
      metrics: {
        restoreFailures: {
          inc: () => {
            this.restoreFailures += 1;
          },
        },
        partialRestoreFailures: { inc() {} },
        setTotal(table, rules) {
          totals[table] = rules;
        },
        setLast() {},
      },
      monitor: async () => {},
      log: silentLogger,
      ...(largeClusterEndpoints === undefined ? {} : { largeClusterEndpoints }),
      ...(portsPerTransaction === undefined ? {} : { portsPerTransaction }),
    });
  }
}
