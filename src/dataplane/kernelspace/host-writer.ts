/**
 * Carries out what is owed, in an order in which nothing is named before it is there or after it has gone. What HNS refuses of one
 * object is noted, owed again, and stops nothing else. Reference windows.md §3, windows-practice.md §8.1.
 */
import type { Yielder } from "../../async/yielder.ts";
import type { HcnLoadBalancer, LoadBalancerSettings } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import { hcnErrorClass } from "../../kernel/hcn/hcn-error.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { SyncFailure } from "../../sync/backend.ts";
import type { EndpointMaker, EndpointWriter } from "./endpoint-writer.ts";
import { type HostState, isOverlay } from "./host-state.ts";
import type { LoadBalancerWriter } from "./load-balancer-writer.ts";
import { Owed } from "./owed.ts";
import { isForeign } from "./ownership.ts";
import type { LoadBalancerKind, PlannedLoadBalancer } from "./plan-service-port.ts";
import type { PortRemarks } from "./port-remarks.ts";
import type { WantedState } from "./wanted-state.ts";

interface HostWriterOptions {
  readonly endpoints: EndpointWriter;
  readonly loadBalancers: LoadBalancerWriter;
  readonly remarks: PortRemarks;
  readonly sourceVip: IpAddress | undefined;
  readonly yielder: Yielder;
  /** Whether the node itself has an address. */
  isHostAddress(address: IpAddress): boolean;
}

interface Wanted {
  readonly owner: string;
  readonly value: PlannedLoadBalancer;
}

/** A frontend to be looked at; lower ranks come first. */
interface Work extends Wanted {
  readonly key: string;
  readonly rank: number;
}

/** A load balancer to be written. */
interface Writing {
  readonly key: string;
  readonly owner: string;
  readonly kind: LoadBalancerKind;
  readonly settings: LoadBalancerSettings;
}

/** Nothing on the node works without names. */
const DNS_PORT = 53;
/** Begins the keys of its service ports. */
const API_SERVER = "default/kubernetes:";
const SOURCE_VIP = "source VIP";

export class HostWriter {
  readonly #options: HostWriterOptions;
  #owed = new Owed();
  #wanted: WantedState;
  /** Addresses with an endpoint that is to go, and that a load balancer still names; looked at with the next sync that does anything. */
  #stillNamed = new Set<IpAddress>();
  #failures = new Map<string, SyncFailure>();

  constructor(options: HostWriterOptions, wanted: WantedState) {
    this.#options = options;
    this.#wanted = wanted;
  }

  /** What the next call of {@link carryOut} does. May be added to. */
  get owed(): Owed {
    return this.#owed;
  }

  /** What was refused since the last {@link begin}, by service port or by what it is. */
  get failures(): ReadonlyMap<string, SyncFailure> {
    return this.#failures;
  }

  /** A sync begins. */
  begin(): void {
    this.#failures = new Map();
  }

  /** From now on this is wanted, and all of it is owed. */
  replaceWanted(wanted: WantedState): Owed {
    this.#wanted = wanted;
    this.#owed = new Owed();
    for (const key of wanted.loadBalancers.keys()) this.#owed.keys.add(key);
    for (const address of wanted.addresses()) this.#owed.addresses.add(address);
    return this.#owed;
  }

  /**
   * By frontend, name resolution and the API server before all else, then cluster IPs: each is served as soon as the endpoints that it
   * names are there, and does not wait for those of others. What is not wanted goes last, endpoints after the load balancers that named
   * them. @throws what stops everything; all is owed again then.
   */
  async carryOut(host: HostState, signal: AbortSignal): Promise<void> {
    const owed = this.#owed;
    for (const address of this.#stillNamed) owed.addresses.add(address);
    this.#stillNamed = new Set();
    // What is not done below is owed again.
    this.#owed = new Owed();
    try {
      const gone = await this.#serve(host, owed, signal);
      for (const id of new Set([...owed.leftovers, ...gone])) {
        // It could not be deleted before, and is wanted again.
        if (this.#isWanted(host, id)) continue;
        signal.throwIfAborted();
        const key = `load balancer ${id}`;
        await this.#attempt(
          key,
          key,
          async () => await this.#options.loadBalancers.remove(host, id),
          () => this.#owed.leftovers.add(id),
        );
      }
      await this.#deleteEndpoints(host, owed.addresses, signal);
    } catch (error) {
      this.#owed.addAll(owed);
      throw error;
    }
  }

  #isWanted(host: HostState, id: Guid): boolean {
    const keys = host.loadBalancers.keysOf(id);
    return keys.some((key) => this.#wanted.loadBalancers.effective(key) !== undefined);
  }

  /** @returns load balancers that nothing wants any more. */
  async #serve(host: HostState, { addresses, keys }: Owed, signal: AbortSignal): Promise<readonly Guid[]> {
    const { endpoints, loadBalancers, yielder } = this.#options;
    const gone: Guid[] = [];
    const work: Work[] = [];
    for (const key of keys) {
      const wanted = this.#wanted.loadBalancers.effective(key);
      const found = host.loadBalancers.at(key);
      if (wanted !== undefined) work.push({ key, ...wanted, rank: this.#rankOf(wanted, found) });
      else if (found !== undefined && !isForeign(found, host)) gone.push(found.id);
    }
    const missing = new Set(addresses);
    await endpoints.making(host, async (make) => {
      await this.#createSourceVip(host, make);
      for (const { key, owner, value } of work.sort((a, b) => a.rank - b.rank)) {
        for (const address of addressesOf(value)) {
          if (missing.delete(address)) await this.#createEndpoint(host, make, address, signal);
        }
        const settings = resolve(host, value);
        const found = host.loadBalancers.at(key);
        // While nothing of it is there, what it had stays, as far as it still leads anywhere.
        const isDone =
          settings.endpoints.length === 0 || (found !== undefined && loadBalancers.isSettled(found, settings));
        signal.throwIfAborted();
        if (!isDone) await this.#put(host, { key, owner, kind: value.kind, settings });
        if (yielder.isDue()) await yielder.turn(signal);
      }
      for (const address of missing) await this.#createEndpoint(host, make, address, signal);
    });
    return gone;
  }

  /** What is changed comes before what is made, which may take its place, and the node's own address last. */
  #rankOf({ owner, value }: Wanted, found: HcnLoadBalancer | undefined): number {
    const isVital = value.mapping.externalPort === DNS_PORT || owner.startsWith(API_SERVER);
    if (isVital && value.kind === "cluster-ip") return 0;
    return (
      (found === undefined ? 3 : this.#options.loadBalancers.canModify ? 1 : 2) * 2 +
      Number(value.frontendVip === undefined)
    );
  }

  async #createEndpoint(host: HostState, make: EndpointMaker, address: IpAddress, signal: AbortSignal): Promise<void> {
    const reason = this.#wanted.reasonFor(address);
    if (reason === undefined || host.endpoints.isServed(address)) return;
    signal.throwIfAborted();
    const { remarks, isHostAddress } = this.#options;
    const owners = this.#wanted.ownersOf(address);
    const [owner = address] = owners;
    const owe = (): void => this.#owed.addAddress(address, this.#wanted);
    if (reason !== "local") {
      const create = () => (reason === "vip" ? make.vip(address) : make.remote(address));
      await this.#attempt(owner, owner, create, owe, `; endpoint for ${address}`);
    } else if (isHostAddress(address)) {
      // No pod has it to itself, so no endpoint will come, and no other pod is worse served.
      const message = "HNS has no endpoint for an address of the node itself, so a Service cannot lead to it";
      remarks.tellOnce(`own ${address}`, message, { address, servicePortName: remarks.nameOf(owner) });
    } else {
      // The CNI plugin makes it; a remote one in its place would keep it from doing so (kubernetes #130963).
      const words = `HNS has no endpoint for the pod ${address} of this node; the CNI plugin makes it`;
      for (const each of owners) this.#fail(each, each, words);
      owe();
    }
  }

  async #createSourceVip(host: HostState, make: EndpointMaker): Promise<void> {
    const { sourceVip } = this.#options;
    if (!isOverlay(host.network) || sourceVip === undefined || host.endpoints.at(sourceVip) !== undefined) return;
    await this.#attempt(
      SOURCE_VIP,
      `${SOURCE_VIP} ${sourceVip}`,
      () => make.sourceVip(sourceVip),
      () => this.#owed.addresses.add(sourceVip),
      "; the source VIP must be reserved by the CNI plugin",
    );
  }

  async #put(host: HostState, { key, owner, kind, settings }: Writing): Promise<void> {
    const put = () => this.#options.loadBalancers.put(host, key, kind, settings);
    if (kind !== "health-check") {
      await this.#attempt(owner, owner, put, () => this.#owed.keys.add(key), `; frontend ${key}`);
      return;
    }
    // On some versions of HNS the health server's own socket is in the way (community #8883): that must not fail the Service.
    try {
      await put();
    } catch (error) {
      if (isFatal(error)) throw error;
      const message =
        "Health checks cannot be forwarded at an address; its load balancer will find this node unhealthy";
      this.#options.remarks.tellOnce(`health ${key}`, message, { frontend: key, error: messageOf(error) });
    }
  }

  async #deleteEndpoints(host: HostState, addresses: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<void> {
    const { endpoints } = this.#options;
    for (const address of addresses) {
      const isWanted = this.#wanted.reasonFor(address) !== undefined;
      const kept = isWanted ? host.endpoints.at(address)?.id : undefined;
      for (const endpoint of endpoints.ownAt(host, address)) {
        if (endpoint.id === kept) continue;
        if (host.loadBalancers.isNamed(endpoint.id)) {
          this.#stillNamed.add(address);
          continue;
        }
        signal.throwIfAborted();
        const subject = `remote endpoint ${address}`;
        const remove = () => endpoints.remove(host, endpoint);
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
      this.#fail(owner, subject, `${messageOf(error)}${about}`);
    }
  }

  #fail(owner: string, subject: string, reason: string): void {
    if (this.#failures.has(owner)) return;
    this.#failures.set(owner, { subject: this.#options.remarks.nameOf(owner) ?? subject, reason });
  }
}

/** What must have an endpoint before a load balancer is of use. */
function addressesOf({ endpoints, frontendVip }: PlannedLoadBalancer): readonly IpAddress[] {
  return [...(endpoints === "root" ? [] : endpoints), ...(frontendVip === undefined ? [] : [frontendVip])];
}

/** Only HNS knows the IDs of endpoints. Those that are not there yet are left out. */
function resolve(
  host: HostState,
  { endpoints, sourceVip, frontendVip, mapping, flags }: PlannedLoadBalancer,
): LoadBalancerSettings {
  const ids = endpoints === "root" ? [host.root] : endpoints.map((address) => host.endpoints.at(address)?.id);
  return { endpoints: ids.filter((id) => id !== undefined), sourceVip, frontendVip, mapping, flags };
}

/** What no single object is to blame for, so that trying the next is of no use. */
function isFatal(error: unknown): boolean {
  const kind = hcnErrorClass(error);
  if (kind !== undefined) return kind === "down" || kind === "denied";
  return !(error instanceof Error && error.name === "FrontendHeldError");
}
