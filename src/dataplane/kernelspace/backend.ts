/**
 * The kernelspace mode for one address family: load balancers of HNS, and endpoints for them to name. A full sync, the first one
 * included, asks HNS what is there and writes only what differs; any other sync writes what changed. Reference windows.md §3.
 */
import type { Clock } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Logger } from "../../logging/logger.ts";
import { type Cidr, type IpAddress, parseCidr } from "../../net/ip.ts";
import type { Backend, LostRules, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { EndpointWriter } from "./endpoint-writer.ts";
import { familyOfLoadBalancer, keysOf } from "./frontend-keys.ts";
import { HostState, isOverlay } from "./host-state.ts";
import { HostWatch } from "./host-watch.ts";
import { HostWriter } from "./host-writer.ts";
import { LoadBalancerWriter } from "./load-balancer-writer.ts";
import type { KernelspaceMetrics } from "./metrics.ts";
import { Overview } from "./overview.ts";
import type { Owed } from "./owed.ts";
import { isForeign, isLeftover } from "./ownership.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import { planServicePort } from "./plan-service-port.ts";
import { PortRemarks } from "./port-remarks.ts";
import { type Verification, verifyHost } from "./verification.ts";
import { noChanges, WantedState } from "./wanted-state.ts";
import { WriteCounts } from "./write-counts.ts";

interface KernelspaceBackendOptions {
  readonly config: PlanConfig;
  readonly hcn: Hcn;
  /** HNS changes load balancers in place. */
  readonly canModify: boolean;
  readonly networkName: string;
  /** `winkernel.rootHnsEndpointName`; undefined where health checks are not forwarded. */
  readonly rootName: string | undefined;
  /** Of the interface with the node's address; empty where no overlay needs it. */
  readonly hostMac: string;
  /** Of every interface, in lower case with colons. */
  readonly hostMacs: ReadonlySet<string>;
  /** Whether an interface of the host has an address. */
  isHostAddress(address: IpAddress): boolean;
  readonly metrics: KernelspaceMetrics;
  /** `syncPeriod`: the longest pause between two looks at HNS, and between two attempts. */
  readonly syncPeriodMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** When long computations give way. @default every 5 ms */
  readonly yielder?: Yielder;
}

/** What asks HNS, and does nothing else for long. */
const CALLS = [
  ...(["network", "networkNamed", "networkIds", "knownEndpoint", "endpointNamed", "endpointIds", "endpoints"] as const),
  ...([
    "loadBalancer",
    "knownLoadBalancer",
    "loadBalancerIds",
    "loadBalancers",
    "makeEndpoints",
    "policyLists",
  ] as const),
  ...(["createLoadBalancer", "modifyLoadBalancer", "delete"] as const),
];
/** Nearly all blocks of 64 of the 16,384 dynamic ports that Windows comes with. */
const MANY_INDIRECT = 200;
const PORTS_TEXT =
  "Every load balancer without direct server return takes a block of 64 dynamic ports, and Windows comes with 256 blocks: set winkernel.enableDSR, or widen the range (netsh int ipv4 set dynamicport tcp start=33000 num=32536)";

export class KernelspaceBackend implements Backend {
  readonly mode = "kernelspace";
  readonly family;
  /** Load balancers whose endpoints are gone are recognised by it. */
  readonly usesServiceCIDRs = true;
  readonly #options: KernelspaceBackendOptions;
  readonly #turns = new Mutex();
  readonly #yielder: Yielder;
  readonly #watch: HostWatch;
  readonly #writer: HostWriter;
  readonly #waits = new KernelWaits();
  readonly #counts = new WriteCounts();
  readonly #loadBalancers: LoadBalancerWriter;
  readonly #endpoints: EndpointWriter;
  readonly #refused: RefusedPorts;
  readonly #remarks: PortRemarks;
  #wanted = new WantedState();
  /** Undefined when HNS is not known to match memory. */
  #host: HostState | undefined;
  readonly #overview = new Overview();
  #nextOverviewMs: number;
  /** On an overlay, nodes have come or gone since the last sync that looked. */
  #isNetworkChanged = false;

  constructor(options: KernelspaceBackendOptions) {
    const { config, log, canModify } = options;
    const hcn = this.#waits.timed(options.hcn, CALLS);
    const counts = this.#counts;
    this.#options = { ...options, hcn };
    this.#nextOverviewMs = options.clock.monotonicMs() + options.syncPeriodMs;
    this.family = config.family;
    this.#yielder = options.yielder ?? new SliceYielder();
    this.#endpoints = new EndpointWriter({ ...this.#options, nodeIP: config.nodeIP, counts });
    this.#remarks = new PortRemarks(log);
    this.#watch = new HostWatch({ ...options, turns: this.#turns });
    this.#loadBalancers = new LoadBalancerWriter({ hcn, canModify, counts, metrics: options.metrics, log });
    const parts = {
      endpoints: this.#endpoints,
      loadBalancers: this.#loadBalancers,
      remarks: this.#remarks,
      sourceVip: config.sourceVip,
      yielder: this.#yielder,
      isHostAddress: options.isHostAddress,
    };
    this.#writer = new HostWriter(parts, this.#wanted);
    this.#refused = new RefusedPorts({
      onNews: ({ subject, reason }) =>
        log.error("Not everything is in HNS; all else is, and this will be tried again", new Error(reason), {
          subject,
        }),
    });
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    return await this.#turns.run(async () => {
      try {
        const outcome = await this.#sync(input, signal);
        this.#watch.afterSync(outcome.failures.length > 0);
        return outcome;
      } catch (error) {
        this.#host = undefined;
        if (!signal.aborted) this.#watch.afterSync(true);
        throw error;
      }
    }, signal);
  }

  /** Looks between syncs whether others have changed something. */
  monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    return this.#watch.run(() => this.#verify(onLost, signal, requestSync), signal, requestSync);
  }

  async close(): Promise<void> {
    this.#watch.stop();
  }

  async #sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#writer.begin();
    this.#counts.begin();
    this.#waits.begin();
    const known = input.isFullSync ? undefined : this.#host;
    if (known === undefined || !(await this.#partialSync(known, input, signal))) await this.#fullSync(input, signal);
    this.#refused.replace(this.#writer.failures);
    this.#warnOfPorts();
    const written = { counts: this.#counts.counts, kernelMs: this.#waits.ms };
    return { failures: this.#refused.failures, noLocalEndpoints: this.#wanted.lacking, written };
  }

  /** Where they are used up, name resolution and new pods fail, and nothing points here (reference windows-practice.md §8). */
  #warnOfPorts(): void {
    const { indirectCount } = this.#wanted;
    if (indirectCount < MANY_INDIRECT) return;
    this.#remarks.tellOnce("dynamic ports", PORTS_TEXT, { loadBalancers: indirectCount });
  }

  /** Reads everything, and writes what differs. */
  async #fullSync(input: SyncInput, signal: AbortSignal): Promise<void> {
    const { hcn, networkName, rootName, config } = this.#options;
    this.#host = undefined;
    const host = await HostState.read(hcn, { family: config.family, networkName, rootName }, signal);
    this.#loadBalancers.keepOnly(host);
    const facts = factsOf(host, input);
    const wanted = new WantedState();
    this.#remarks.reset();
    for (const key of input.services.keys()) {
      this.#put(wanted, key, input, facts);
      if (this.#yielder.isDue()) await this.#yielder.turn(signal);
    }
    this.#wanted = wanted;
    const owed = this.#writer.replaceWanted(wanted);
    for (const endpoint of host.endpoints.all()) {
      if (!this.#endpoints.isOurs(host, endpoint)) continue;
      for (const address of endpoint.addresses) owed.addresses.add(address);
    }
    this.#findAstray(host, owed);
    for (const id of this.#leftovers(host, input.serviceCIDRs)) owed.leftovers.add(id);
    await this.#carryOut(host, signal);
    this.#host = host;
  }

  /** @returns false when everything must be looked at after all. */
  async #partialSync(host: HostState, input: SyncInput, signal: AbortSignal): Promise<boolean> {
    const { hcn } = this.#options;
    const { owed } = this.#writer;
    if (input.changedPorts.size === 0 && owed.isNothing && !this.#isNetworkChanged) return true;
    let ports: Iterable<string> = input.changedPorts;
    if (isOverlay(host.network)) {
      const network = await hcn.network(host.network.id);
      if (network === undefined) return false;
      if (JSON.stringify(network) !== JSON.stringify(host.network)) {
        // Nodes have come or gone. What there is of HNS is known; where it leads to must be looked at.
        host.network = network;
        this.#findAstray(host, owed);
        ports = new Set([...input.services.keys(), ...input.changedPorts]);
      }
      this.#isNetworkChanged = false;
    }
    await host.refreshEndpoints(hcn, signal);
    this.#follow(host);
    const changes = noChanges();
    const facts = factsOf(host, input);
    for (const key of ports) this.#put(this.#wanted, key, input, facts, changes);
    for (const key of changes.loadBalancers.keys()) owed.keys.add(key);
    for (const address of changes.addresses) owed.addresses.add(address);
    await this.#carryOut(host, signal);
    return true;
  }

  /** Writes what is owed, and what turns out to have gone while it writes. */
  async #carryOut(host: HostState, signal: AbortSignal): Promise<void> {
    await this.#writer.carryOut(host, signal);
    if (!this.#follow(host).isNothing) await this.#writer.carryOut(host, signal);
  }

  #findAstray(host: HostState, owed: Owed): void {
    const astray = this.#endpoints.findAstray(host, (address) => this.#wanted.reasonFor(address));
    for (const address of astray) owed.addAddress(address, this.#wanted);
  }

  #put(wanted: WantedState, key: string, input: SyncInput, facts: PlanFacts, changes?: ReturnType<typeof noChanges>) {
    const port = input.services.get(key);
    if (port === undefined) {
      wanted.put(key, undefined, changes);
      this.#remarks.forget(key);
      return;
    }
    const plan = planServicePort(port, input.endpoints.get(key) ?? [], this.#options.config, facts);
    wanted.put(key, plan, changes);
    this.#remarks.note(key, port.name.text, plan.remarks);
  }

  /** What no Service wants, and what shows that it is ours. */
  #leftovers(host: HostState, serviceCIDRs: readonly string[]): readonly Guid[] {
    const cidrs: readonly Cidr[] = serviceCIDRs.map((text) => parseCidr(text)).filter((cidr) => cidr !== undefined);
    const wanted = new Set<Guid>();
    for (const key of this.#wanted.loadBalancers.keys()) {
      const id = host.loadBalancers.at(key)?.id;
      if (id !== undefined) wanted.add(id);
    }
    const leftovers: Guid[] = [];
    for (const one of host.loadBalancers.all()) {
      if (wanted.has(one.id) || familyOfLoadBalancer(one) !== this.family) continue;
      const isOurs = isLeftover(one, host, cidrs) || (this.#loadBalancers.isOwn(one.id) && !isForeign(one, host));
      if (isOurs) leftovers.push(one.id);
      else
        this.#remarks.tellOnce(
          `foreign ${one.id}`,
          "A load balancer that no Service wants shows no sign of being kube-proxy's; it stays",
          one,
        );
    }
    return leftovers;
  }

  async #verify(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const host = this.#host;
    if (host === undefined) return;
    const { hcn, networkName, rootName, log } = this.#options;
    let found: Verification = "same-network";
    try {
      found = await verifyHost(hcn, host, { networkName, rootName, overview: this.#dueOverview(), signal });
    } finally {
      // Also what was seen before HNS failed.
      if (found !== "other-network") this.#tell(this.#follow(host), found === "changed-network", onLost, requestSync);
    }
    if (found !== "other-network") return;
    log.warn("The HNS network is not present or has changed; all is looked at again", { network: networkName });
    this.#host = undefined;
    onLost();
  }

  /** Owes what looks have found. */
  #follow(host: HostState): FollowedNews {
    const { lost, changed, addresses, hasNewRoot } = host.takeNews();
    const { owed } = this.#writer;
    const keys = new Set(
      changed.flatMap(({ before, now }) => [before, now].flatMap((one) => keysOf(one, this.family))),
    );
    for (const key of lost) owed.keys.add(key);
    const isWanted = (key: string): boolean => this.#wanted.loadBalancers.effective(key) !== undefined;
    for (const key of keys) if (isWanted(key)) owed.keys.add(key);
    // One of ours that is at another frontend now is in the way there, unless it is wanted, which is looked at when it is to go.
    for (const { before, now } of changed) {
      const wasOurs = this.#loadBalancers.isOwn(now.id) || keysOf(before, this.family).some((key) => isWanted(key));
      if (wasOurs && !isForeign(now, host)) owed.leftovers.add(now.id);
    }
    for (const address of addresses) owed.addAddress(address, this.#wanted);
    if (hasNewRoot) for (const key of this.#wanted.healthCheckKeys()) owed.keys.add(key);
    const isNothing = lost.size + changed.length + addresses.size === 0 && !hasNewRoot;
    return { isNothing, lost: this.#ownersAt(lost), changed: this.#ownersAt(keys) };
  }

  #tell(
    { isNothing, lost, changed }: FollowedNews,
    hasChangedNetwork: boolean,
    onLost: (lost?: LostRules) => void,
    requestSync: () => void,
  ): void {
    const { log } = this.#options;
    if (hasChangedNetwork) this.#isNetworkChanged = true;
    if (lost.size > 0) {
      log.warn("Load balancers were deleted by another program; making them again", { servicePorts: lost.size });
    }
    if (changed.size > 0) {
      log.warn("Load balancers were changed by another program; changing them back", { servicePorts: changed.size });
    }
    if (lost.size + changed.size > 0) onLost({ ports: new Set([...lost, ...changed]) });
    else if (!isNothing || hasChangedNetwork) requestSync();
  }

  /** The service ports that want these frontends. */
  #ownersAt(keys: ReadonlySet<string>): ReadonlySet<string> {
    return new Set([...keys].flatMap((key) => this.#wanted.loadBalancers.effective(key)?.owner ?? []));
  }

  /** Once in a sync period; for the first time after one. */
  #dueOverview(): Overview | undefined {
    const { clock, syncPeriodMs } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs < this.#nextOverviewMs) return undefined;
    this.#nextOverviewMs = nowMs + syncPeriodMs;
    return this.#overview;
  }
}

/** What was found, and whose it is: keys of service ports. */
interface FollowedNews {
  readonly isNothing: boolean;
  readonly lost: ReadonlySet<string>;
  readonly changed: ReadonlySet<string>;
}

function factsOf({ network }: HostState, { zone }: SyncInput): PlanFacts {
  return { zone, isOverlay: isOverlay(network), remoteSubnets: network.remoteSubnets };
}
