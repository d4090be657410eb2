/**
 * The kernelspace mode for one address family: load balancers of HNS, and endpoints for them to name. A full sync, the first one
 * included, asks HNS what is there and writes only what differs; any other sync writes what changed. Reference windows.md §3.
 */
import type { Clock, Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import type { HcnLoadBalancer, LoadBalancerSettings } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import { hcnErrorClass } from "../../kernel/hcn/hcn-error.ts";
import type { Logger } from "../../logging/logger.ts";
import { type Cidr, type IpAddress, parseCidr } from "../../net/ip.ts";
import type { Backend, LostRules, SyncFailure, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { EndpointWriter } from "./endpoint-writer.ts";
import { familyOfLoadBalancer } from "./frontend-keys.ts";
import { HostState, isOverlay } from "./host-state.ts";
import { LoadBalancerWriter } from "./load-balancer-writer.ts";
import { isForeign, isLeftover } from "./ownership.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import { type PlannedLoadBalancer, planServicePort } from "./plan-service-port.ts";
import { PortRemarks } from "./port-remarks.ts";
import { verifyHost } from "./verification.ts";
import { noChanges, WantedState } from "./wanted-state.ts";

export interface KernelspaceBackendOptions {
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
  /** `syncPeriod`: how often it is looked whether others have changed something. */
  readonly verifyPeriodMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** When long computations give way. @default every 10 ms */
  readonly yielder?: Yielder;
}

/** What a sync has to look at besides what changed. */
interface Owed {
  readonly keys: Set<string>;
  readonly addresses: Set<IpAddress>;
  /** Load balancers that are to go. */
  readonly leftovers: Set<Guid>;
}

/** The first retry comes so soon; each further one after twice the time, up to the sync period. */
const FIRST_RETRY_MS = 1_000;
const SOURCE_VIP = "source VIP";

export class KernelspaceBackend implements Backend {
  readonly mode = "kernelspace";
  readonly family;
  /** Load balancers whose endpoints are gone are recognised by it. */
  readonly usesServiceCIDRs = true;
  readonly #options: KernelspaceBackendOptions;
  readonly #turns = new Mutex();
  readonly #yielder: Yielder;
  readonly #loadBalancers: LoadBalancerWriter;
  readonly #endpoints: EndpointWriter;
  readonly #refused: RefusedPorts;
  readonly #remarks: PortRemarks;
  readonly #told = new Set<string>();
  #wanted = new WantedState();
  /** Undefined when HNS is not known to match memory. */
  #host: HostState | undefined;
  #owed: Owed = nothingOwed();
  /** Addresses with an endpoint that is to go, and that a load balancer still names; looked at with the next sync that does anything. */
  #stillNamed = new Set<IpAddress>();
  #failures = new Map<string, SyncFailure>();
  #retryMs = FIRST_RETRY_MS;
  #retry: Timer | undefined;
  #requestSync: (() => void) | undefined;

  constructor(options: KernelspaceBackendOptions) {
    const { config, hcn, log, canModify } = options;
    this.#options = options;
    this.family = config.family;
    this.#yielder = options.yielder ?? new SliceYielder();
    this.#loadBalancers = new LoadBalancerWriter({ hcn, canModify, log });
    this.#endpoints = new EndpointWriter({ ...options, nodeIP: config.nodeIP });
    this.#remarks = new PortRemarks(log);
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
        this.#scheduleRetry(outcome.failures.length > 0);
        return outcome;
      } catch (error) {
        this.#host = undefined;
        if (!signal.aborted) this.#scheduleRetry(true);
        throw error;
      }
    }, signal);
  }

  /** Looks every sync period whether others have changed something, with three calls when they have not. */
  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { clock, verifyPeriodMs, log } = this.#options;
    this.#requestSync = requestSync;
    try {
      while (!signal.aborted) {
        await clock.sleep(verifyPeriodMs, signal);
        if (signal.aborted) return;
        try {
          await this.#turns.run(() => this.#verify(onLost, requestSync));
        } catch (error) {
          log.error("HNS could not be asked whether everything is still there", error);
        }
      }
    } finally {
      this.#requestSync = undefined;
      this.#retry?.cancel();
    }
  }

  async close(): Promise<void> {
    this.#retry?.cancel();
  }

  async #sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#failures = new Map();
    const known = input.isFullSync ? undefined : this.#host;
    if (known === undefined || !(await this.#partialSync(known, input, signal))) await this.#fullSync(input, signal);
    this.#refused.replace(this.#failures);
    return { failures: this.#refused.failures, noLocalEndpoints: this.#wanted.lacking };
  }

  /** Reads everything, and writes what differs. */
  async #fullSync(input: SyncInput, signal: AbortSignal): Promise<void> {
    const { hcn, networkName, rootName, config } = this.#options;
    this.#host = undefined;
    const host = await HostState.read(hcn, { family: config.family, networkName, rootName }, signal);
    const facts = factsOf(host, input);
    const wanted = new WantedState();
    this.#remarks.reset();
    for (const key of input.services.keys()) {
      this.#put(wanted, key, input, facts);
      if (this.#yielder.isDue()) await this.#yielder.turn(signal);
    }
    this.#wanted = wanted;
    const owed = nothingOwed();
    for (const key of wanted.loadBalancers.keys()) owed.keys.add(key);
    for (const address of wanted.addresses()) owed.addresses.add(address);
    for (const endpoint of host.endpoints.all()) {
      if (!this.#endpoints.isOurs(host, endpoint)) continue;
      for (const address of endpoint.addresses) owed.addresses.add(address);
    }
    for (const id of this.#leftovers(host, input.serviceCIDRs)) owed.leftovers.add(id);
    this.#owed = owed;
    await this.#carryOut(host, signal);
    this.#host = host;
  }

  /** @returns false when everything must be looked at after all. */
  async #partialSync(host: HostState, input: SyncInput, signal: AbortSignal): Promise<boolean> {
    const { hcn } = this.#options;
    const owed = this.#owed;
    const owedCount = owed.keys.size + owed.addresses.size + owed.leftovers.size;
    if (input.changedPorts.size === 0 && owedCount === 0) return true;
    if (isOverlay(host.network)) {
      const network = await hcn.network(host.network.id);
      if (network === undefined || JSON.stringify(network) !== JSON.stringify(host.network)) return false;
    }
    for (const address of await host.refreshEndpoints(hcn)) {
      owed.addresses.add(address);
      for (const key of this.#wanted.keysNaming(address)) owed.keys.add(key);
    }
    const changes = noChanges();
    const facts = factsOf(host, input);
    for (const key of input.changedPorts) this.#put(this.#wanted, key, input, facts, changes);
    for (const key of changes.loadBalancers.keys()) owed.keys.add(key);
    for (const address of changes.addresses) owed.addresses.add(address);
    await this.#carryOut(host, signal);
    return true;
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
      if (isLeftover(one, host, cidrs)) leftovers.push(one.id);
      else
        this.#tellOnce(
          `foreign ${one.id}`,
          "A load balancer that no Service wants shows no sign of being kube-proxy's; it stays",
          one,
        );
    }
    return leftovers;
  }

  /**
   * Endpoints come first, because load balancers name them; then what is wanted, cluster IPs before all else; what is not wanted
   * goes last, endpoints after the load balancers that named them.
   */
  async #carryOut(host: HostState, signal: AbortSignal): Promise<void> {
    const owed = this.#owed;
    for (const address of this.#stillNamed) owed.addresses.add(address);
    this.#stillNamed = new Set();
    // What is not done below is owed again.
    this.#owed = nothingOwed();
    try {
      await this.#createEndpoints(host, owed.addresses, signal);
      const gone = await this.#putLoadBalancers(host, owed.keys, signal);
      for (const id of new Set([...owed.leftovers, ...gone])) {
        signal.throwIfAborted();
        const key = `load balancer ${id}`;
        await this.#attempt(
          key,
          key,
          async () => await this.#loadBalancers.remove(host, id),
          () => this.#owed.leftovers.add(id),
        );
      }
      await this.#deleteEndpoints(host, owed.addresses, signal);
    } catch (error) {
      for (const key of owed.keys) this.#owed.keys.add(key);
      for (const address of owed.addresses) this.#owed.addresses.add(address);
      for (const id of owed.leftovers) this.#owed.leftovers.add(id);
      throw error;
    }
  }

  async #createEndpoints(host: HostState, addresses: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<void> {
    const { config } = this.#options;
    const { sourceVip } = config;
    if (isOverlay(host.network) && sourceVip !== undefined && host.endpoints.at(sourceVip) === undefined) {
      const advice = "; the source VIP must be reserved by the CNI plugin";
      await this.#attempt(
        SOURCE_VIP,
        `${SOURCE_VIP} ${sourceVip}`,
        () => this.#endpoints.createSourceVip(host, sourceVip),
        () => this.#owed.addresses.add(sourceVip),
        advice,
      );
    }
    for (const address of addresses) {
      const reason = this.#wanted.reasonFor(address);
      if (reason === undefined || host.endpoints.at(address) !== undefined) continue;
      signal.throwIfAborted();
      const owe = (): void => this.#oweAddress(address);
      if (reason === "local") {
        // The CNI plugin makes it; a remote one in its place would keep it from doing so (kubernetes #130963).
        for (const owner of this.#wanted.ownersOf(address)) {
          this.#fail(owner, owner, `HNS has no endpoint for the pod ${address} of this node; the CNI plugin makes it`);
        }
        owe();
      } else {
        const create = () =>
          reason === "vip" ? this.#endpoints.createVip(host, address) : this.#endpoints.createRemote(host, address);
        for (const owner of [this.#wanted.ownersOf(address)[0] ?? address]) {
          await this.#attempt(owner, owner, create, owe, `; endpoint for ${address}`);
        }
      }
    }
  }

  #oweAddress(address: IpAddress): void {
    this.#owed.addresses.add(address);
    for (const key of this.#wanted.keysNaming(address)) this.#owed.keys.add(key);
  }

  /** @returns load balancers that nothing wants any more. */
  async #putLoadBalancers(host: HostState, keys: ReadonlySet<string>, signal: AbortSignal): Promise<readonly Guid[]> {
    const gone: Guid[] = [];
    const work: (readonly [
      key: string,
      owner: string,
      settings: LoadBalancerSettings,
      found: HcnLoadBalancer | undefined,
    ])[] = [];
    for (const key of keys) {
      const wanted = this.#wanted.loadBalancers.effective(key);
      const found = host.loadBalancers.at(key);
      if (wanted === undefined) {
        if (found !== undefined && !isForeign(found, host)) gone.push(found.id);
        continue;
      }
      const settings = this.#resolve(host, wanted.value);
      // Nothing of it is there yet: what it had stays, as far as it still leads anywhere.
      if (settings.endpoints.length === 0) continue;
      if (found !== undefined && this.#loadBalancers.isSettled(found, settings)) continue;
      work.push([key, wanted.owner, settings, found]);
      if (this.#yielder.isDue()) await this.#yielder.turn(signal);
    }
    const { canModify } = this.#loadBalancers;
    const rank = ([, , { frontendVip }, found]: (typeof work)[number]): number =>
      (found === undefined ? 2 : canModify ? 0 : 1) * 2 + Number(frontendVip === undefined);
    for (const [key, owner, settings] of work.sort((a, b) => rank(a) - rank(b))) {
      signal.throwIfAborted();
      const { kind } = this.#wanted.loadBalancers.get(key) ?? {};
      const put = () => this.#loadBalancers.put(host, key, settings);
      if (kind === "health-check") await this.#putHealthCheck(key, put);
      else await this.#attempt(owner, owner, put, () => this.#owed.keys.add(key), `; frontend ${key}`);
    }
    return gone;
  }

  /** On some versions of HNS the health server's own socket is in the way (community #8883): that must not fail the Service. */
  async #putHealthCheck(key: string, put: () => Promise<void>): Promise<void> {
    try {
      await put();
    } catch (error) {
      if (isFatal(error)) throw error;
      const message =
        "Health checks cannot be forwarded at an address; its load balancer will find this node unhealthy";
      this.#tellOnce(`health ${key}`, message, { frontend: key, error: textOf(error) });
    }
  }

  #resolve(
    host: HostState,
    { endpoints, sourceVip, frontendVip, mapping, flags }: PlannedLoadBalancer,
  ): LoadBalancerSettings {
    const ids = endpoints === "root" ? [host.root] : endpoints.map((address) => host.endpoints.at(address)?.id);
    return { endpoints: ids.filter((id) => id !== undefined), sourceVip, frontendVip, mapping, flags };
  }

  async #deleteEndpoints(host: HostState, addresses: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<void> {
    for (const address of addresses) {
      const isWanted = this.#wanted.reasonFor(address) !== undefined;
      const kept = isWanted ? host.endpoints.at(address)?.id : undefined;
      for (const endpoint of this.#endpoints.ownAt(host, address)) {
        if (endpoint.id === kept) continue;
        if (host.loadBalancers.isNamed(endpoint.id)) {
          this.#stillNamed.add(address);
          continue;
        }
        signal.throwIfAborted();
        const subject = `remote endpoint ${address}`;
        const remove = () => this.#endpoints.remove(host, endpoint);
        await this.#attempt(subject, subject, remove, () => this.#owed.addresses.add(address));
      }
    }
  }

  /** Does one thing; what HNS refuses is noted, and owed again. */
  async #attempt(
    owner: string,
    subject: string,
    work: () => Promise<void>,
    owe: () => void,
    about = "",
  ): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (isFatal(error)) throw error;
      owe();
      this.#fail(owner, subject, `${textOf(error)}${about}`);
    }
  }

  #fail(owner: string, subject: string, reason: string): void {
    if (this.#failures.has(owner)) return;
    this.#failures.set(owner, { subject: this.#remarks.nameOf(owner) ?? subject, reason });
  }

  async #verify(onLost: (lost?: LostRules) => void, requestSync: () => void): Promise<void> {
    const host = this.#host;
    if (host === undefined) return;
    const { hcn, networkName, log } = this.#options;
    const found = await verifyHost(hcn, host, networkName);
    if (found.kind === "other-network") {
      log.warn("The HNS network is not present or has changed; all is looked at again", { network: networkName });
      this.#host = undefined;
      onLost();
      return;
    }
    for (const key of found.keys) this.#owed.keys.add(key);
    for (const address of found.addresses) {
      this.#owed.addresses.add(address);
      for (const key of this.#wanted.keysNaming(address)) this.#owed.keys.add(key);
    }
    const lost = new Set([...found.keys].flatMap((key) => this.#wanted.loadBalancers.effective(key)?.owner ?? []));
    if (lost.size > 0) {
      log.warn("Load balancers were deleted by another program; making them again", { servicePorts: lost.size });
      onLost({ ports: lost });
    } else if (found.addresses.size > 0) requestSync();
  }

  #scheduleRetry(hasFailed: boolean): void {
    const { clock, verifyPeriodMs } = this.#options;
    this.#retry?.cancel();
    if (!hasFailed) {
      this.#retryMs = FIRST_RETRY_MS;
      return;
    }
    this.#retry = clock.setTimer(this.#retryMs, () => this.#requestSync?.());
    this.#retryMs = Math.min(this.#retryMs * 2, verifyPeriodMs);
  }

  #tellOnce(what: string, message: string, facts: object): void {
    if (this.#told.has(what)) return;
    this.#told.add(what);
    this.#options.log.warn(message, { ...facts });
  }
}

function nothingOwed(): Owed {
  return { keys: new Set(), addresses: new Set(), leftovers: new Set() };
}

function factsOf({ network }: HostState, { zone }: SyncInput): PlanFacts {
  return { zone, isOverlay: isOverlay(network), remoteSubnets: network.remoteSubnets };
}

/** What no single object is to blame for, so that trying the next is of no use. */
function isFatal(error: unknown): boolean {
  const kind = hcnErrorClass(error);
  if (kind !== undefined) return kind === "down" || kind === "denied";
  return !(error instanceof Error && error.name === "FrontendHeldError");
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
