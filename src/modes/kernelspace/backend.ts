/**
 * The kernelspace mode for one address family: HNS load balancers, and the endpoints that they name. A full sync, such as the
 * first one, reads HNS's state and writes only the differences; any other sync writes what changed. Reference windows.md §3.
 */

import type { Backend, LostRules, SyncInput, SyncOutcome } from "../../contract/backend.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, parseCidr } from "../../net/ip.ts";
import { Reconciler, type Target, type Work } from "../shared/reconciler.ts";
import type { Parts } from "../shared/wanted-parts.ts";
import { familyOfLoadBalancer, keysOf } from "./frontend-keys.ts";
import { HostState, isOverlay } from "./host-state.ts";
import { HostWatch } from "./host-watch.ts";
import { HostWriter } from "./host-writer.ts";
import type { KernelspaceOptions } from "./options.ts";
import { planServicePort } from "./plan-service-port.ts";
import { type KernelspaceKinds, type KernelspaceWanted, newWanted, partsOf } from "./wanted.ts";

/** Close to the 256 blocks of 64 ports that Windows' default range of 16,384 dynamic ports has. */
const MANY_INDIRECT = 200;
const PORTS_TEXT =
  "Every load balancer without direct server return takes a block of 64 dynamic ports, and Windows comes with 256 blocks: set winkernel.enableDSR, or widen the range (netsh int ipv4 set dynamicport tcp start=33000 num=32536)";

export class KernelspaceBackend implements Backend, Target<KernelspaceKinds, HostState> {
  readonly mode = "kernelspace";
  readonly family;
  /** They identify load balancers of ours whose endpoints are gone. */
  readonly usesServiceCIDRs = true;
  readonly newWanted = newWanted;
  readonly #options: KernelspaceOptions;
  readonly #reconciler: Reconciler<KernelspaceKinds, HostState>;
  readonly #watch: HostWatch;
  readonly #writer: HostWriter;
  /** When the next verification also compares the settings of load balancers. */
  #nextThoroughMs: number;

  constructor(given: KernelspaceOptions) {
    const { config, syncPeriodMs } = given;
    const waits = new KernelWaits();
    const options = { ...given, hcn: waits.timed(given.hcn, "watch") };
    this.#options = options;
    this.#nextThoroughMs = options.clock.monotonicMs() + syncPeriodMs;
    this.family = config.family;
    this.#reconciler = new Reconciler({
      ...options,
      ...{ target: this, place: "HNS", waits, longestRetryMs: syncPeriodMs },
    });
    this.#watch = new HostWatch({ ...given, turns: this.#reconciler.turns });
    this.#writer = new HostWriter(options, this.#reconciler.warnings);
  }

  sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    return this.#reconciler.sync(input, signal);
  }

  /** Detects changes by other programs between syncs. */
  monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const reconciler = this.#reconciler;
    reconciler.retryBy(requestSync, signal);
    return this.#watch.run(
      () => this.#verify(onLost, signal, requestSync),
      signal,
      () => reconciler.hurry(),
    );
  }

  async close(): Promise<void> {
    this.#reconciler.stop();
  }

  async look(_input: SyncInput, signal: AbortSignal): Promise<HostState> {
    const host = await HostState.read(this.#options.hcn, this.#options, signal);
    this.#writer.loadBalancers.keepOnly(host);
    return host;
  }

  async refresh(host: HostState, input: SyncInput, signal: AbortSignal): Promise<Iterable<string> | undefined> {
    const { hcn } = this.#options;
    const { services, changedPorts } = input;
    if (changedPorts.size === 0 && host.doubt.isNothing && !host.hasChangedNetwork) return [];
    let ports: Iterable<string> = changedPorts;
    if (isOverlay(host.network)) {
      const network = await hcn.get("Network", host.network.id);
      if (network === undefined) return undefined;
      if (JSON.stringify(network) !== JSON.stringify(host.network)) {
        // Nodes have come or gone. The objects of HNS are known, but where they lead must be checked again.
        host.network = network;
        this.#writer.endpoints.findAstray(host, this.#reconciler.wanted);
        ports = new Set([...services.keys(), ...changedPorts]);
      }
      host.hasChangedNetwork = false;
    }
    await host.refreshEndpoints(hcn, signal);
    this.#follow(host, this.#reconciler.wanted);
    return ports;
  }

  plan(key: string, port: ServicePort, { endpoints, zone }: SyncInput, host: HostState): Parts<KernelspaceKinds> {
    const { network } = host;
    const facts = { zone, isOverlay: isOverlay(network), remoteSubnets: network.remoteSubnets };
    const plan = planServicePort(port, endpoints.get(key) ?? [], this.#options.config, facts);
    const name = { servicePortName: port.name.text };
    this.#reconciler.warnings.note(
      key,
      plan.warnings.map((message) => ({ message, facts: name })),
    );
    return partsOf(plan);
  }

  async apply(work: Work<KernelspaceKinds, HostState>, signal: AbortSignal): Promise<void> {
    const { input, known: host, wanted, isWhole, notes } = work;
    const { loadBalancers, endpoints } = wanted.of;
    if (isWhole) this.#doubtAll(host, wanted, input.serviceCIDRs);
    const { doubt } = host;
    for (const key of loadBalancers.touched.keys()) doubt.frontends.add(key);
    for (const [key, before] of endpoints.touched) {
      const touched = before ?? endpoints.get(key);
      if (touched !== undefined) doubt.endpointsAt.add(touched.address);
    }
    if (!isWhole && doubt.isNothing && input.changedPorts.size === 0) return;
    const turn = { host, wanted, notes, signal };
    await this.#writer.carryOut(turn);
    // Repairs what turned out to be gone while writing.
    if (!this.#follow(host, wanted).isNothing) await this.#writer.carryOut(turn);
    this.#warnOfPorts(wanted.of.indirect.size);
  }

  #doubtAll(host: HostState, wanted: KernelspaceWanted, serviceCIDRs: readonly string[]): void {
    const { doubt } = host;
    for (const key of wanted.of.loadBalancers.keys()) doubt.frontends.add(key);
    for (const [, { value }] of wanted.of.endpoints.entries()) doubt.endpointsAt.add(value.address);
    for (const endpoint of host.endpoints.all()) {
      if (!this.#writer.endpoints.isOurs(host, endpoint)) continue;
      for (const address of endpoint.addresses) doubt.endpointsAt.add(address);
    }
    this.#writer.endpoints.findAstray(host, wanted);
    this.#findLeftovers(host, wanted, serviceCIDRs);
  }

  /** When they run out, name resolution and new pods fail without any hint at the cause (reference windows-practice.md §8). */
  #warnOfPorts(loadBalancers: number): void {
    if (loadBalancers >= MANY_INDIRECT)
      this.#reconciler.warnings.tellOnce("dynamic ports", PORTS_TEXT, { loadBalancers });
  }

  /** Finds load balancers that no Service wants and that are recognisably ours. */
  #findLeftovers(host: HostState, { of }: KernelspaceWanted, serviceCIDRs: readonly string[]): void {
    const cidrs: readonly Cidr[] = serviceCIDRs.map((text) => parseCidr(text)).filter((cidr) => cidr !== undefined);
    const wanted = new Set(Array.from(of.loadBalancers.keys(), (key) => host.loadBalancers.at(key)?.id));
    for (const one of host.loadBalancers.all()) {
      if (wanted.has(one.id) || familyOfLoadBalancer(one) !== this.family) continue;
      if (host.isLeftover(one, cidrs) || (this.#writer.loadBalancers.isOwn(one.id) && !host.isForeign(one))) {
        host.doubt.leftovers.add(one.id);
        continue;
      }
      const message = "A load balancer without a Service does not look like kube-proxy's; it is left alone";
      this.#reconciler.warnings.tellOnce(`foreign ${one.id}`, message, one);
    }
  }

  async #verify(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { known: host, wanted } = this.#reconciler;
    if (host === undefined) return;
    const { hcn, networkName, log } = this.#options;
    let isSame = true;
    try {
      isSame = await host.verify(hcn, this.#isThoroughDue(), signal);
    } finally {
      // Includes what was seen before HNS failed.
      if (isSame) this.#tell(host, this.#follow(host, wanted), onLost, requestSync);
    }
    if (isSame) return;
    log.warn("The HNS network is not present or has changed; everything is read again", { network: networkName });
    this.#reconciler.forget();
    onLost();
  }

  /** Marks what the latest reads of HNS found as to be checked by the next write. */
  #follow(host: HostState, wanted: KernelspaceWanted): FollowedNews {
    const { lost, changed, hasNewRoot, hasEndpoints } = host.takeNews();
    const { doubt } = host;
    const keys = new Set(
      changed.flatMap(({ before, now }) => [before, now].flatMap((one) => keysOf(one, this.family))),
    );
    for (const key of lost) doubt.frontends.add(key);
    const isWanted = (key: string): boolean => wanted.of.loadBalancers.has(key);
    for (const key of keys) if (isWanted(key)) doubt.frontends.add(key);
    // One of ours that is now at another frontend is in the way there, unless it is wanted there; the removal checks that.
    for (const { before, now } of changed) {
      const wasOurs = this.#writer.loadBalancers.isOwn(now.id) || keysOf(before, this.family).some(isWanted);
      if (wasOurs && !host.isForeign(now)) doubt.leftovers.add(now.id);
    }
    if (hasNewRoot) {
      for (const [key, { value }] of wanted.of.loadBalancers.entries()) {
        if (value.kind === "health-check") doubt.frontends.add(key);
      }
    }
    return { isNothing: lost.size + changed.length === 0 && !hasNewRoot && !hasEndpoints, lost, changed: keys };
  }

  #tell(
    host: HostState,
    { isNothing, ...found }: FollowedNews,
    onLost: (lost?: LostRules) => void,
    requestSync: () => void,
  ): void {
    const { log } = this.#options;
    const { loadBalancers } = this.#reconciler.wanted.of;
    const ownersAt = (keys: ReadonlySet<string>) =>
      new Set([...keys].flatMap((key) => loadBalancers.effective(key)?.owner ?? []));
    const [lost, changed] = [ownersAt(found.lost), ownersAt(found.changed)];
    if (lost.size > 0) {
      log.warn("Another program deleted load balancers; recreating them", { servicePorts: lost.size });
    }
    if (changed.size > 0) {
      log.warn("Another program changed load balancers; changing them back", { servicePorts: changed.size });
    }
    if (lost.size + changed.size > 0) onLost({ ports: lost.union(changed) });
    else if (!isNothing || host.hasChangedNetwork) requestSync();
  }

  /** Once per sync period, first after one period. */
  #isThoroughDue(): boolean {
    const { clock, syncPeriodMs } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs < this.#nextThoroughMs) return false;
    this.#nextThoroughMs = nowMs + syncPeriodMs;
    return true;
  }
}

/** Frontends that other programs changed. */
interface FollowedNews {
  readonly isNothing: boolean;
  readonly lost: ReadonlySet<string>;
  readonly changed: ReadonlySet<string>;
}
