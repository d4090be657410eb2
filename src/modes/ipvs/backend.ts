/**
 * The ipvs mode for one address family: virtual servers, IP sets, addresses of kube-ipvs0 and a constant number of
 * iptables rules. A full sync, such as the first one, reads the kernel's state and writes only the differences; any
 * other sync writes what changed. Reference ipvs.md.
 */

import type { Backend, LedConnections, LostRules, SyncInput, SyncOutcome } from "../../contract/backend.ts";
import { IptablesError } from "../../kernel/iptables/iptables.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import { Reconciler, type Target, type Work } from "../shared/reconciler.ts";
import type { Parts } from "../shared/wanted-parts.ts";
import { type AddressDifference, addressesElsewhere, addressWarnings, DummyAddresses } from "./dummy-addresses.ts";
import { GracefulTermination } from "./graceful-termination.ts";
import { IpSets, type SetDifference } from "./ip-sets.ts";
import { ipsetEntryText } from "./ipset/ipset.ts";
import type { VirtualServerKey } from "./kernel/ipvs.ts";
import { DUMMY_DEVICE, setName } from "./names.ts";
import { type IpvsFacts, type NodeState, nodeAddressFacts } from "./node-facts.ts";
import type { IpvsOptions } from "./options.ts";
import { planRules, type RulesPlan } from "./plan-rules.ts";
import { planServicePort } from "./plan-service-port.ts";

import { IptablesRules } from "./rules.ts";
import { type VirtualServerDifference, VirtualServers } from "./virtual-servers.ts";
import { type IpvsKinds, type IpvsWanted, newWanted, type PartFailure, partsOf, rulesInput } from "./wanted.ts";
import { Watch } from "./watch.ts";

/** Differences between the kernel and the wanted state, except rules. */
interface Difference {
  readonly sets: SetDifference;
  readonly virtualServers: VirtualServerDifference;
  readonly addresses: AddressDifference;
}

/** How often rules are compared and repaired in a row if other programs change them in the meantime. */
const REPAIR_ATTEMPTS = 3;
const RULES = "iptables rules of the ipvs mode";
const LEFTOVERS = "rules that the iptables mode left behind";

export class IpvsBackend implements Backend, Target<IpvsKinds, IpvsFacts> {
  readonly mode = "ipvs";
  readonly countsServices = true;
  readonly family;
  readonly usesOtherNodes = true;
  readonly newWanted = newWanted;
  readonly #options: IpvsOptions;
  readonly #reconciler: Reconciler<IpvsKinds, IpvsFacts>;
  readonly #graceful: GracefulTermination;
  readonly #sets: IpSets;
  readonly #virtualServers: VirtualServers;
  readonly #addresses: DummyAddresses;
  readonly #rules: IptablesRules;
  readonly #watch: Watch;
  readonly #waits = new KernelWaits();
  #hasReplacedIptables = false;
  #isFirst = true;
  /** Since the last look at the node. */
  #elsewhere: ReadonlySet<IpAddress> | undefined;

  constructor(given: IpvsOptions) {
    const options = this.#timed(given);
    this.#options = options;
    this.family = options.config.family;
    this.#reconciler = new Reconciler({
      ...options,
      ...{ target: this, place: "the kernel", waits: this.#waits, longestRetryMs: options.verifyPeriodMs },
    });
    this.#sets = new IpSets(options);
    this.#graceful = new GracefulTermination(options);
    this.#virtualServers = new VirtualServers(options, this.#graceful);
    this.#addresses = new DummyAddresses(options);
    this.#rules = new IptablesRules(options.iptables);
    const isInDoubt = (address: IpAddress) => this.#addresses.isInDoubt(address);
    const damage = (signal: AbortSignal) => this.#damage(signal);
    this.#watch = new Watch({ ...options, reconciler: this.#reconciler, graceful: this.#graceful, isInDoubt, damage });
  }

  readonly led: LedConnections = {
    read: async () => {},
    release: (flows) => this.#graceful.removeNow(flows),
    isMarked: false,
  };

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#watch.giveWay();
    const outcome = await this.#reconciler.sync(input, signal);
    // Real servers of an earlier process that still have connections.
    if (!this.#isFirst) return outcome;
    this.#isFirst = false;
    return { ...outcome, formerEndpoints: [...this.#graceful.endpoints()] };
  }

  /** Notices changes of devices and addresses at once, and all others with the next verification. */
  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    this.#reconciler.retryBy(requestSync, signal);
    await this.#watch.run(onLost, requestSync, signal);
  }

  #timed(options: IpvsOptions): IpvsOptions {
    const { ipvs, ipset, links, iptables } = options;
    return {
      ...options,
      ipvs: this.#waits.timed(ipvs),
      ipset: this.#waits.timed(ipset),
      links: this.#waits.timed(links, "watch"),
      iptables: this.#waits.timed(iptables),
    };
  }

  async look({ zone, otherNodes = new Map() }: SyncInput, signal: AbortSignal): Promise<IpvsFacts> {
    this.#elsewhere = undefined;
    await this.#options.links.ensureDummy(DUMMY_DEVICE);
    await this.#sets.ensure();
    await this.#restoreSettings();
    return { ...(await this.#readNode(signal)), zone, otherNodes };
  }

  async refresh(_facts: IpvsFacts, { changedPorts }: SyncInput): Promise<Iterable<string> | undefined> {
    return (await this.#sets.isAnyUsableAgain()) ? undefined : changedPorts;
  }

  plan(key: string, port: ServicePort, { endpoints }: SyncInput, facts: IpvsFacts): Parts<IpvsKinds> {
    const hasExternal = port.externalIPs.length + port.loadBalancerVIPs.length > 0;
    if (hasExternal) this.#elsewhere ??= addressesElsewhere(endpoints.values());
    this.#reconciler.warnings.note(
      key,
      addressWarnings(port, this.#options.excludeCIDRs, facts, this.#elsewhere ?? new Set()),
    );
    return partsOf(planServicePort(port, endpoints.get(key) ?? [], this.#options.config, facts));
  }

  async apply(work: Work<IpvsKinds, IpvsFacts>, signal: AbortSignal): Promise<void> {
    const { notes } = work;
    await this.#carryOut(await this.#compare(work, signal), work, signal);
    // Once these rules are in force, those of the iptables mode are unused, even if something else was rejected.
    if (this.#hasReplacedIptables || !this.#rules.isKnown) return;
    this.#hasReplacedIptables = await this.#rules.removeLeftovers(this.#options.log);
    if (!this.#hasReplacedIptables) notes.refuse(undefined, LEFTOVERS, "not all of them could be removed, see the log");
  }

  async #restoreSettings(): Promise<void> {
    try {
      await this.#options.restoreSettings();
    } catch (error) {
      this.#options.log.error("Failed to restore the parameters and timeouts of IPVS", error);
    }
  }

  async #readNode(signal: AbortSignal): Promise<NodeState> {
    const { links, nodePortAddresses } = this.#options;
    const facts = nodeAddressFacts(await links.addresses(this.family, signal), nodePortAddresses);
    const routes = await links.localRoutes(this.family, signal);
    return { ...facts, routed: new Set(routes.map(({ address }) => address)) };
  }

  async #compare(
    { known, wanted, isWhole }: Pick<Work<IpvsKinds, NodeState>, "known" | "wanted" | "isWhole">,
    signal: AbortSignal,
  ): Promise<Difference> {
    const how = isWhole ? "compareAll" : "compareTouched";
    return {
      sets: await this.#sets[how](wanted, signal),
      virtualServers: await this.#virtualServers[how](wanted.of.virtualServers, signal),
      addresses: this.#addresses[how](wanted.of.addresses, known),
    };
  }

  /**
   * Additions come first and deletions last. Rules come before virtual servers, so that source ranges are in force
   * before anything is served; if the kernel rejects them, new virtual servers wait.
   */
  async #carryOut(
    { sets, virtualServers, addresses }: Difference,
    { wanted, isWhole, notes }: Work<IpvsKinds, IpvsFacts>,
    signal: AbortSignal,
  ): Promise<void> {
    const { family } = this;
    const note = (what: string, asked: number, refused: readonly PartFailure[]): void => {
      for (const one of refused) {
        notes.refuse(wanted.of[one.kind].effective(one.key)?.owner, this.#nameOf(one), one.reason);
      }
      notes.count(what, asked - refused.length);
    };
    const notAdded = await this.#sets.add(sets, wanted, signal);
    note("set entries added", sets.additions.length, notAdded);
    for (const [id, reason] of this.#sets.unusable) notes.refuseAll(`IP set ${setName(id, family)}`, reason);
    try {
      await (isWhole ? this.#repairRules(wanted) : this.#updateRules(wanted));
    } catch (error) {
      if (!(error instanceof IptablesError)) throw error;
      this.#options.metrics.restoreFailures.inc();
      notes.refuseAll(RULES, error.message);
    }
    const servers = wanted.of.virtualServers;
    const isOpen = this.#openServers(wanted, notAdded);
    const changed = [...virtualServers.changes.values()].filter(({ operations }) => operations.length > 0);
    const notServed = await this.#virtualServers.change(virtualServers, servers, signal, isOpen);
    note("virtual servers written", changed.length, notServed);
    const { bind, rebind, unbind, foreign } = addresses;
    note("addresses bound", bind.length + rebind.length, await this.#addresses.bind(addresses));
    note("addresses unbound", unbind.length + foreign.length, await this.#addresses.unbind(addresses));
    const { deletions } = virtualServers;
    note("virtual servers deleted", deletions.size, await this.#virtualServers.delete(virtualServers, signal));
    note("set entries deleted", sets.deletions.length, await this.#sets.delete(sets, signal));
  }

  #nameOf({ kind, key }: PartFailure): string {
    if (kind === "virtualServers") return `virtual server ${key}`;
    return kind === "addresses" ? `address ${key}` : `IP set ${setName(kind, this.family)}`;
  }

  /** Selects the virtual servers whose source ranges are not in force in the kernel. */
  #openServers(wanted: IpvsWanted, notAdded: readonly PartFailure[]): (server: VirtualServerKey) => boolean {
    const id = "loadBalancerFirewall";
    const isNoneKnown = !this.#rules.isKnown || this.#sets.unusable.has(id);
    const unknown = new Set(notAdded.filter(({ kind }) => kind === id).map(({ key }) => key));
    return ({ address, protocol, port }) => {
      const key = ipsetEntryText({ kind: "ip-port", address, protocol: protocolName(protocol), port });
      return wanted.of[id].has(key) && (isNoneKnown || unknown.has(key));
    };
  }

  #planRules(wanted: IpvsWanted): RulesPlan {
    return planRules(this.#options.config, { ...rulesInput(wanted), unusable: new Set(this.#sets.unusable.keys()) });
  }

  async #repairRules(wanted: IpvsWanted): Promise<void> {
    const plan = this.#planRules(wanted);
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#rules.repair(plan, await this.#rules.compare(plan));
        return;
      } catch (error) {
        // Another program may have flushed the tables after the comparison: then the target of a jump is missing.
        if (!(error instanceof IptablesError) || error.code === "lock_held" || attempt === REPAIR_ATTEMPTS) throw error;
      }
    }
  }

  /** Most changes of Services change only sets, not rules. */
  async #updateRules(wanted: IpvsWanted): Promise<void> {
    const plan = this.#planRules(wanted);
    if (this.#rules.isInstalled(plan)) return;
    if (this.#rules.isKnown) await this.#rules.replace(plan);
    else await this.#repairRules(wanted);
  }

  /** Counts changes by other programs in the kernel; undefined if there are none or if no state is known. */
  async #damage(signal: AbortSignal): Promise<Readonly<Record<string, number>> | undefined> {
    const { known, wanted } = this.#reconciler;
    if (known === undefined) return undefined;
    const look = { known: await this.#readNode(signal), wanted, isWhole: true };
    const { sets, virtualServers, addresses } = await this.#compare(look, signal);
    const rules = await this.#rules.compare(this.#planRules(wanted));
    const changed = [...virtualServers.changes.values()].filter(({ operations }) =>
      operations.some((operation) => !this.#graceful.anticipates(operation)),
    );
    const damage = {
      virtualServers: changed.length + virtualServers.deletions.size,
      setEntries: sets.additions.length + sets.deletions.length,
      addresses: addresses.bind.length + addresses.rebind.length + addresses.unbind.length + addresses.foreign.length,
      rules: Number(rules.differs || rules.missingJumps.length > 0),
    };
    return Object.values(damage).some((count) => count > 0) ? damage : undefined;
  }
}
