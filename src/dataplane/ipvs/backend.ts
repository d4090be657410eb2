/**
 * The ipvs mode for one address family: virtual servers, IP sets, addresses of kube-ipvs0 and a constant number of iptables
 * rules. A full sync, the first one included, asks the kernel what is there and writes only what differs; any other sync
 * writes what changed. Reference ipvs.md.
 */

import type { Clock } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import type { Ipset } from "../../kernel/ipset/ipset.ts";
import { type Iptables, IptablesError } from "../../kernel/iptables/iptables.ts";
import type { Ipvs } from "../../kernel/ipvs/ipvs.ts";
import { IPTABLES_WAITS, KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Links } from "../../kernel/route/links.ts";
import type { Logger } from "../../logging/logger.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";
import type { Backend, LostRules, SyncInput, SyncOutcome, Written } from "../../sync/backend.ts";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { AddressRemarks } from "./address-remarks.ts";
import { type AddressDifference, type AddressFailures, DummyAddresses } from "./dummy-addresses.ts";
import { SyncFailures } from "./failures.ts";
import { GracefulTermination } from "./graceful-termination.ts";
import { IpSets, type SetDifference, type SetFailure } from "./ip-sets.ts";
import { removeIptablesLeftovers } from "./iptables-leftovers.ts";
import { DUMMY_DEVICE, setName } from "./names.ts";
import { type NodeAddressFacts, nodeAddressFacts } from "./node-facts.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import { planRules, type RulesPlan } from "./plan-rules.ts";
import { planServicePort, type ServicePortPlan } from "./plan-service-port.ts";
import { IptablesRules } from "./rules.ts";
import { type VirtualServerDifference, type VirtualServerFailures, VirtualServers } from "./virtual-servers.ts";
import { noChanges, WantedState } from "./wanted-state.ts";
import { Watch } from "./watch.ts";

interface IpvsBackendOptions {
  readonly config: PlanConfig;
  readonly ipvs: Ipvs;
  readonly ipset: Ipset;
  readonly links: Links;
  readonly iptables: Iptables;
  readonly nodePortAddresses: NodePortAddresses;
  /** `ipvs.excludeCIDRs`: virtual servers there are never deleted. */
  readonly excludeCIDRs: readonly Cidr[];
  /** Sets again what is lost with the module of IPVS: its parameters and timeouts. Asked with every full sync. */
  readonly restoreSettings: () => Promise<void>;
  readonly metrics: IpvsMetrics;
  /** `syncPeriod`: how often the kernel is compared with what is wanted. */
  readonly verifyPeriodMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** When long computations give way. @default every 5 ms */
  readonly yielder?: Yielder;
}

/** The measurements of this mode, one family. */
interface IpvsMetrics {
  /** Refused or failed iptables-restore. */
  readonly restoreFailures: { inc(): void };
}

/** Where the kernel differs from what is wanted, rules excepted. */
interface Difference {
  readonly sets: SetDifference;
  readonly virtualServers: VirtualServerDifference;
  readonly addresses: AddressDifference;
}

/** The node's addresses, as a sync finds them. */
interface NodeState extends NodeAddressFacts {
  /** Destinations of the routes to the node itself. */
  readonly routed: ReadonlySet<IpAddress>;
}

/** How often rules are compared and repaired at once while others change them meanwhile. */
const REPAIR_ATTEMPTS = 3;
const RULES = "iptables rules of the ipvs mode";

export class IpvsBackend implements Backend {
  readonly mode = "ipvs";
  readonly family;
  readonly #options: IpvsBackendOptions;
  readonly #remarks: AddressRemarks;
  readonly #graceful = new GracefulTermination();
  readonly #sets: IpSets;
  readonly #virtualServers: VirtualServers;
  readonly #addresses: DummyAddresses;
  readonly #rules: IptablesRules;
  readonly #watch: Watch;
  /** Syncs, verification and the removal of idle real servers do not overlap. */
  readonly #turns = new Mutex();
  readonly #waits = new KernelWaits();
  readonly #yielder: Yielder;
  #wanted = new WantedState();
  /** Of the last full sync; undefined when the kernel is not known to match memory. */
  #facts: PlanFacts | undefined;
  /** By subject: what the last sync left undone. Each part knows what of it to try again. */
  readonly #refused: RefusedPorts;
  #hasReplacedIptables = false;
  /** Of the last sync. */
  #written: Written["counts"] = {};

  constructor(given: IpvsBackendOptions) {
    const options = this.#timed(given);
    const { config, ipvs, ipset, links, iptables, excludeCIDRs, log } = options;
    this.#options = options;
    this.family = config.family;
    this.#yielder = options.yielder ?? new SliceYielder();
    this.#refused = new RefusedPorts({
      onNews: ({ subject, reason }) =>
        log.error("Not everything is in the kernel; all else is, and this will be tried again", new Error(reason), {
          subject,
        }),
    });
    this.#remarks = new AddressRemarks(excludeCIDRs, log);
    this.#sets = new IpSets(ipset, config.family, this.#yielder);
    this.#virtualServers = new VirtualServers({
      ipvs,
      family: config.family,
      excludeCIDRs,
      graceful: this.#graceful,
      yielder: this.#yielder,
    });
    this.#addresses = new DummyAddresses(links);
    this.#rules = new IptablesRules(iptables);
    this.#watch = new Watch({ ...options, turns: this.#turns, graceful: this.#graceful });
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#watch.giveWay();
    return await this.#turns.run(() => this.#sync(input, signal), signal);
  }

  /** Sees what others do to devices and addresses at once, and to all else with the next verification. */
  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    await this.#watch.run(
      {
        facts: () => this.#facts,
        wantedAddresses: () => this.#wanted.addresses,
        damage: (ended) => this.#damage(ended),
        onLost: () => onLost(),
        onNodeChanged: () => {
          this.#facts = undefined;
          requestSync();
        },
      },
      signal,
    );
  }

  #timed(options: IpvsBackendOptions): IpvsBackendOptions {
    const { ipvs, ipset, links, iptables } = options;
    return {
      ...options,
      ipvs: this.#waits.timed(ipvs, ["virtualServers", "virtualServer", "realServers", "apply"]),
      ipset: this.#waits.timed(ipset, ["sets", "definition", "ensure", "members", "apply", "destroy"]),
      links: this.#waits.timed(links, ["ensureDummy", "addresses", "localRoutes", "addAddresses", "removeAddresses"]),
      iptables: this.#waits.timed(iptables, IPTABLES_WAITS),
    };
  }

  async #sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#waits.begin();
    const failures = new SyncFailures(input);
    const facts = input.isFullSync ? undefined : this.#facts;
    // If anything is thrown from here on, nothing is known of the kernel until a full sync has looked.
    this.#facts = undefined;
    if (facts !== undefined && !(await this.#sets.isAnyUsableAgain())) {
      await this.#partialSync(input, facts, failures, signal);
      this.#facts = facts;
    } else {
      this.#facts = await this.#fullSync(input, failures, signal);
    }
    if (!this.#hasReplacedIptables && failures.size === 0) {
      this.#hasReplacedIptables = true;
      await removeIptablesLeftovers(this.#options.iptables, this.#options.log);
    }
    this.#refused.replace(failures.bySubject);
    const written = { counts: this.#written, kernelMs: this.#waits.ms };
    return { failures: this.#refused.failures, noLocalEndpoints: this.#wanted.lacking, written };
  }

  /** Reads everything, and writes what differs. */
  async #fullSync(input: SyncInput, failures: SyncFailures, signal: AbortSignal): Promise<PlanFacts> {
    const { links } = this.#options;
    await links.ensureDummy(DUMMY_DEVICE);
    await this.#sets.ensure();
    await this.#restoreSettings();
    const node = await this.#readNode(signal);
    const facts: PlanFacts = { zone: input.zone, nodeAddresses: node.nodeAddresses, nodePortIPs: node.nodePortIPs };
    const wanted = new WantedState();
    const yielder = this.#yielder;
    for (const key of input.services.keys()) {
      this.#put(key, input, facts, (service, plan) => wanted.put(key, service, plan));
      if (yielder.isDue()) await yielder.turn(signal);
    }
    this.#wanted = wanted;
    this.#remarks.report(input.services, node.devices);
    const difference = await this.#compareAll(node, signal);
    await this.#carryOut(difference, () => this.#repairRules(), failures, signal);
    return facts;
  }

  /** Writes what the changed ports make different. */
  async #partialSync(input: SyncInput, facts: PlanFacts, failures: SyncFailures, signal: AbortSignal): Promise<void> {
    const wanted = this.#wanted;
    const changes = noChanges();
    for (const key of input.changedPorts) {
      this.#put(key, input, facts, (service, plan) => wanted.put(key, service, plan, changes));
    }
    this.#remarks.update(input.changedPorts, input.services);
    const difference: Difference = {
      sets: await this.#sets.compareTouched(wanted, changes, signal),
      virtualServers: await this.#virtualServers.compareTouched(wanted.virtualServers, changes.virtualServers, signal),
      addresses: this.#addresses.compareTouched(wanted.addresses, changes.addresses),
    };
    await this.#carryOut(difference, () => this.#updateRules(), failures, signal);
  }

  #put(
    key: string,
    { services, endpoints }: SyncInput,
    facts: PlanFacts,
    put: (service: string, plan: ServicePortPlan | undefined) => void,
  ): void {
    const port = services.get(key);
    if (port === undefined) put("", undefined);
    else put(port.name.service, planServicePort(port, endpoints.get(key) ?? [], this.#options.config, facts));
  }

  async #restoreSettings(): Promise<void> {
    try {
      await this.#options.restoreSettings();
    } catch (error) {
      this.#options.log.error("The parameters of IPVS may not be what they were set to at the start", error);
    }
  }

  async #readNode(signal: AbortSignal): Promise<NodeState> {
    const { links, nodePortAddresses } = this.#options;
    const facts = nodeAddressFacts(await links.addresses(this.family, signal), nodePortAddresses);
    const routes = await links.localRoutes(this.family, signal);
    return { ...facts, routed: new Set(routes.map(({ address }) => address)) };
  }

  async #compareAll({ bound, routed, foreign }: NodeState, signal: AbortSignal): Promise<Difference> {
    return {
      sets: await this.#sets.compareAll(this.#wanted, signal),
      virtualServers: await this.#virtualServers.compareAll(this.#wanted.virtualServers, signal),
      addresses: this.#addresses.compareAll(this.#wanted.addresses, bound, routed, foreign),
    };
  }

  /**
   * What is wanted comes first and what is not goes last. Rules come before virtual servers, so that nothing is served
   * before its source ranges are.
   */
  async #carryOut(
    difference: Difference,
    syncRules: () => Promise<void>,
    failures: SyncFailures,
    signal: AbortSignal,
  ): Promise<void> {
    const { sets, virtualServers, addresses } = difference;
    this.#written = countsOf(difference);
    const wanted = this.#wanted.virtualServers;
    this.#noteSets(await this.#sets.add(sets, this.#wanted, signal), failures);
    for (const [id, reason] of this.#sets.unusable) {
      failures.addGeneral(`IP set ${setName(id, this.family)}`, reason);
    }
    try {
      await syncRules();
    } catch (error) {
      if (!(error instanceof IptablesError)) throw error;
      this.#options.metrics.restoreFailures.inc();
      failures.addGeneral(RULES, error.message);
    }
    this.#noteVirtualServers(await this.#virtualServers.change(virtualServers, wanted, signal), failures);
    this.#noteAddresses(await this.#addresses.bind(addresses), failures);
    this.#noteAddresses(await this.#addresses.unbind(addresses), failures);
    this.#noteVirtualServers(await this.#virtualServers.delete(virtualServers, signal), failures);
    this.#noteSets(await this.#sets.delete(sets, signal), failures);
  }

  #noteSets(refused: readonly SetFailure[], failures: SyncFailures): void {
    for (const { set, key, reason } of refused) {
      const owner = this.#wanted.entries(set).effective(key)?.owner;
      failures.add(owner, `IP set ${setName(set, this.family)}`, reason);
    }
  }

  #noteVirtualServers(refused: VirtualServerFailures, failures: SyncFailures): void {
    for (const [key, reason] of refused) {
      failures.add(this.#wanted.virtualServers.effective(key)?.owner, `virtual server ${key}`, reason);
    }
  }

  #noteAddresses(refused: AddressFailures, failures: SyncFailures): void {
    for (const [address, reason] of refused) {
      failures.add(this.#wanted.addresses.effective(address)?.owner, `address ${address}`, reason);
    }
  }

  #planRules(): RulesPlan {
    return planRules(this.#options.config, {
      filled: this.#wanted.filledSets(),
      unusable: new Set(this.#sets.unusable.keys()),
      deniedVips: this.#wanted.deniedVips(),
    });
  }

  async #repairRules(): Promise<void> {
    const plan = this.#planRules();
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#rules.repair(plan, await this.#rules.compare(plan));
        return;
      } catch (error) {
        // Another program may have flushed the tables between the look and the repair: what a jump needs is gone then.
        if (!(error instanceof IptablesError) || error.code === "lock_held" || attempt === REPAIR_ATTEMPTS) throw error;
      }
    }
  }

  /** Most changes of services are changes of sets, and leave the rules as they are. */
  async #updateRules(): Promise<void> {
    const plan = this.#planRules();
    if (this.#rules.isInstalled(plan)) return;
    if (this.#rules.isKnown) await this.#rules.replace(plan);
    else await this.#repairRules();
  }

  /** What another program has done to the kernel; undefined when all is as it was left, or when nothing is known to be. */
  async #damage(signal: AbortSignal): Promise<Readonly<Record<string, number>> | undefined> {
    if (this.#facts === undefined || this.#refused.size > 0) return undefined;
    const { sets, virtualServers, addresses } = await this.#compareAll(await this.#readNode(signal), signal);
    const rules = await this.#rules.compare(this.#planRules());
    const changed = [...virtualServers.changes.values()].filter(({ operations }) =>
      operations.some((operation) => !this.#graceful.anticipates(operation)),
    );
    const damage = {
      virtualServers: changed.length + virtualServers.deletions.size,
      setEntries: sets.additions.length + sets.deletions.length,
      addresses: addresses.bind.length + addresses.rebind.length + addresses.unbind.length + addresses.foreign.length,
      rules: Number(rules.differs || rules.lacksJumps),
    };
    return Object.values(damage).some((count) => count > 0) ? damage : undefined;
  }
}

/** What a difference comes to, in the words of the tools. */
function countsOf({ sets, virtualServers, addresses }: Difference): Written["counts"] {
  return {
    "virtual servers written": virtualServers.changes.size,
    "virtual servers deleted": virtualServers.deletions.size,
    "set entries added": sets.additions.length,
    "set entries deleted": sets.deletions.length,
    "addresses bound": addresses.bind.length + addresses.rebind.length,
    "addresses unbound": addresses.unbind.length,
  };
}
