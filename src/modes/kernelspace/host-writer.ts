/**
 * Reconciles what is in doubt, in an order in which no object is named before it is created or after it is deleted. If HNS rejects
 * one object, that is noted, stays in doubt, and does not affect the others. Reference windows.md §3, windows-practice.md §8.1.
 */
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { PortWarnings } from "../shared/port-warnings.ts";
import type { SyncNotes } from "../shared/reconciler.ts";
import { EndpointWriter, type MakeEndpoint } from "./endpoint-writer.ts";
import type { HcnLoadBalancer, LoadBalancerSettings } from "./hcn/documents.ts";
import type { Guid } from "./hcn/guid.ts";
import { hcnErrorClass } from "./hcn/hcn-error.ts";
import { type HostState, isOverlay } from "./host-state.ts";
import { type LoadBalancerToPut, LoadBalancerWriter } from "./load-balancer-writer.ts";
import type { KernelspaceOptions } from "./options.ts";
import type { PlannedLoadBalancer } from "./plan-service-port.ts";
import type { KernelspaceWanted } from "./wanted.ts";

interface Wanted {
  readonly owner: string;
  readonly value: PlannedLoadBalancer;
}

/** A frontend to reconcile; lower ranks come first. */
interface Work extends Wanted {
  readonly key: string;
  readonly rank: number;
}

/** Nothing on the node works without name resolution. */
const DNS_PORT = 53;
/** The prefix of the keys of its service ports. */
const API_SERVER = "default/kubernetes:";

/** One call of {@link HostWriter.carryOut}. */
interface Turn {
  readonly host: HostState;
  readonly wanted: KernelspaceWanted;
  readonly notes: SyncNotes;
  readonly signal: AbortSignal;
}

export class HostWriter {
  readonly #options: KernelspaceOptions;
  readonly endpoints: EndpointWriter;
  readonly loadBalancers: LoadBalancerWriter;
  readonly #warnings: PortWarnings;

  constructor(options: KernelspaceOptions, warnings: PortWarnings) {
    this.#options = options;
    this.endpoints = new EndpointWriter(options);
    this.loadBalancers = new LoadBalancerWriter(options);
    this.#warnings = warnings;
  }

  /**
   * Works by frontend: DNS and the API server first, then the others in the order of their ranks. Each is written as soon as its own
   * endpoints exist, without waiting for those of others. Deletions come last, endpoints after the load balancers that named them.
   * @throws an error that affects everything, after which a full sync is needed.
   */
  async carryOut(turn: Turn): Promise<void> {
    const { host, wanted, notes, signal } = turn;
    const doubt = host.takeDoubt();
    const addresses = doubt.addresses.union(doubt.endpointsAt).union(doubt.stillNamed);
    const frontends = new Set<string>();
    for (const address of doubt.addresses) {
      for (const owner of wanted.of.endpoints.ownersOf(address)) {
        for (const [key] of wanted.by(owner).loadBalancers ?? []) frontends.add(key);
      }
    }
    const gone = await this.#serve(turn, addresses, frontends.union(doubt.frontends));
    for (const id of new Set([...doubt.leftovers, ...gone])) {
      // It could not be deleted before, and now it is wanted again.
      if (host.frontendsOf(id).some((key) => wanted.of.loadBalancers.has(key))) continue;
      signal.throwIfAborted();
      await this.#attempt(
        async () => await this.loadBalancers.remove(host, notes, id),
        (reason) => {
          host.doubt.leftovers.add(id);
          notes.refuse(undefined, `load balancer ${id}`, reason);
        },
      );
    }
    await this.#deleteEndpoints(turn, addresses);
  }

  /** @returns load balancers that are no longer wanted. */
  async #serve(
    turn: Turn,
    addresses: ReadonlySet<IpAddress>,
    frontends: ReadonlySet<string>,
  ): Promise<readonly Guid[]> {
    const { host, wanted, notes, signal } = turn;
    const { endpoints, loadBalancers } = this;
    const gone: Guid[] = [];
    const work: Work[] = [];
    for (const key of frontends) {
      const planned = wanted.of.loadBalancers.effective(key);
      const found = host.loadBalancers.at(key);
      if (planned !== undefined) work.push({ key, ...planned, rank: this.#rankOf(planned, found) });
      else if (found !== undefined && !host.isForeign(found)) gone.push(found.id);
    }
    const missing = new Set(addresses);
    await endpoints.making(host, notes, async (make) => {
      await this.#createSourceVip(turn, make);
      for (const { key, owner, value } of work.sort((a, b) => a.rank - b.rank)) {
        for (const address of addressesOf(value)) {
          if (missing.delete(address)) await this.#createEndpoint(turn, make, address);
        }
        const settings = resolve(host, value);
        const found = host.loadBalancers.at(key);
        // While none of its endpoints exists, the present load balancer stays.
        const isDone =
          settings.endpoints.length === 0 || (found !== undefined && loadBalancers.isSettled(found, settings));
        signal.throwIfAborted();
        if (!isDone) await this.#put(owner, { host, notes, key, kind: value.kind, wanted: settings });
        if (isTurnDue()) await giveTurn(signal);
      }
      for (const address of missing) await this.#createEndpoint(turn, make, address);
    });
    return gone;
  }

  /** Changes come before creations, which may take their place; the node's own address comes last within each. */
  #rankOf({ owner, value }: Wanted, found: HcnLoadBalancer | undefined): number {
    const isVital = value.mapping.externalPort === DNS_PORT || owner.startsWith(API_SERVER);
    if (isVital && value.kind === "cluster-ip") return 0;
    return (
      (found === undefined ? 3 : this.loadBalancers.canModify ? 1 : 2) * 2 + Number(value.frontendVip === undefined)
    );
  }

  async #createEndpoint({ host, wanted, notes, signal }: Turn, make: MakeEndpoint, address: IpAddress): Promise<void> {
    const reason = wanted.of.endpoints.get(address)?.reason;
    if (reason === undefined || host.isServed(address)) return;
    signal.throwIfAborted();
    const owners = wanted.of.endpoints.ownersOf(address);
    const [owner = address] = owners;
    if (reason !== "local") {
      await this.#attempt(
        () => make(address, reason),
        (why) => {
          host.doubt.addresses.add(address);
          notes.refuse(owner, address, `${why}; endpoint for ${address}`);
        },
      );
    } else if (this.#options.isHostAddress(address)) {
      // It is no pod's own address, so no endpoint will come.
      const message = "HNS has no endpoint for an address of the node itself, so a Service cannot lead to it";
      this.#warnings.tellOnce(`own ${address}`, message, { address, servicePortName: notes.nameOf(owner) });
    } else {
      // The CNI plugin creates it; a remote one in its place would prevent that (kubernetes #130963).
      const words = `HNS has no endpoint for the pod ${address} of this node; the CNI plugin has to create it`;
      for (const each of owners) notes.refuse(each, each, words);
      host.doubt.addresses.add(address);
    }
  }

  async #createSourceVip({ host, notes }: Turn, make: MakeEndpoint): Promise<void> {
    const { sourceVip } = this.#options.config;
    if (!isOverlay(host.network) || sourceVip === undefined || host.endpointAt(sourceVip) !== undefined) return;
    await this.#attempt(
      () => make(sourceVip, "source-vip"),
      (reason) => {
        host.doubt.addresses.add(sourceVip);
        const advice = "the source VIP must be reserved by the CNI plugin";
        notes.refuse(undefined, `source VIP ${sourceVip}`, `${reason}; ${advice}`);
      },
    );
  }

  async #put(owner: string, one: LoadBalancerToPut): Promise<void> {
    const { host, notes, key, kind } = one;
    await this.#attempt(
      () => this.loadBalancers.put(one),
      (error, isTaken) => {
        if (kind !== "health-check" || !isTaken) {
          host.doubt.frontends.add(key);
          notes.refuse(owner, key, `${error}; frontend ${key}`);
          return;
        }
        // In some versions of HNS our health server's socket is in the way (community #8883): that must not fail the Service.
        const message =
          "Health checks cannot be forwarded at an address; its load balancer will find this node unhealthy";
        this.#warnings.tellOnce(`health ${key}`, message, { frontend: key, error });
      },
    );
  }

  async #deleteEndpoints({ host, wanted, notes, signal }: Turn, addresses: ReadonlySet<IpAddress>): Promise<void> {
    const { endpoints } = this;
    for (const address of addresses) {
      const kept = wanted.of.endpoints.has(address) ? host.endpointAt(address)?.id : undefined;
      for (const endpoint of endpoints.ownAt(host, address)) {
        if (endpoint.id === kept) continue;
        if (host.isNamed(endpoint.id)) {
          host.doubt.stillNamed.add(address);
          continue;
        }
        signal.throwIfAborted();
        await this.#attempt(
          () => endpoints.remove(host, notes, endpoint),
          (reason) => {
            host.doubt.addresses.add(address);
            notes.refuse(undefined, `remote endpoint ${address}`, reason);
          },
        );
      }
    }
  }

  /** @param onRefused gets the reason, and whether something else holds the frontend. @throws an error that affects everything. */
  async #attempt(work: () => Promise<void>, onRefused: (reason: string, isTaken: boolean) => void): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (isFatal(error)) throw error;
      onRefused(messageOf(error), hcnErrorClass(error) === undefined);
    }
  }
}

/** The addresses that need an endpoint before a load balancer can work. */
function addressesOf({ endpoints, frontendVip }: PlannedLoadBalancer): readonly IpAddress[] {
  return [...(endpoints === "root" ? [] : endpoints), ...(frontendVip === undefined ? [] : [frontendVip])];
}

/** Looks up the IDs of endpoints, leaving out those that do not exist yet. */
function resolve(
  host: HostState,
  { endpoints, sourceVip, frontendVip, mapping, flags }: PlannedLoadBalancer,
): LoadBalancerSettings {
  const ids = endpoints === "root" ? [host.root] : endpoints.map((address) => host.endpointAt(address)?.id);
  return { endpoints: ids.filter((id) => id !== undefined), sourceVip, frontendVip, mapping, flags };
}

/** Whether the error is not about one object, so that trying the next is useless. */
function isFatal(error: unknown): boolean {
  const kind = hcnErrorClass(error);
  if (kind !== undefined) return kind === "down" || kind === "denied";
  return !(error instanceof Error && error.name === "FrontendHeldError");
}
