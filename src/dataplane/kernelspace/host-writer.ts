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
import type { PlannedLoadBalancer } from "./plan-service-port.ts";
import type { PortRemarks } from "./port-remarks.ts";
import type { WantedState } from "./wanted-state.ts";

export interface HostWriterOptions {
  readonly endpoints: EndpointWriter;
  readonly loadBalancers: LoadBalancerWriter;
  readonly remarks: PortRemarks;
  readonly sourceVip: IpAddress | undefined;
  readonly yielder: Yielder;
}

/** One load balancer to be written. */
interface Work {
  readonly key: string;
  readonly owner: string;
  readonly isHealthCheck: boolean;
  readonly settings: LoadBalancerSettings;
  readonly found: HcnLoadBalancer | undefined;
}

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
   * Endpoints come first, because load balancers name them; then what is wanted, cluster IPs before all else; what is not wanted
   * goes last, endpoints after the load balancers that named them. @throws what stops everything; all is owed again then.
   */
  async carryOut(host: HostState, signal: AbortSignal): Promise<void> {
    const owed = this.#owed;
    for (const address of this.#stillNamed) owed.addresses.add(address);
    this.#stillNamed = new Set();
    // What is not done below is owed again.
    this.#owed = new Owed();
    try {
      await this.#createEndpoints(host, owed.addresses, signal);
      const gone = await this.#putLoadBalancers(host, owed.keys, signal);
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

  async #createEndpoints(host: HostState, addresses: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<void> {
    await this.#options.endpoints.making(host, async (make) => {
      await this.#createSourceVip(host, make);
      for (const address of addresses) {
        const reason = this.#wanted.reasonFor(address);
        if (reason === undefined || host.endpoints.isServed(address)) continue;
        signal.throwIfAborted();
        const owe = (): void => this.#owed.addAddress(address, this.#wanted);
        const [owner = address] = this.#wanted.ownersOf(address);
        if (reason === "local") {
          // The CNI plugin makes it; a remote one in its place would keep it from doing so (kubernetes #130963).
          const words = `HNS has no endpoint for the pod ${address} of this node; the CNI plugin makes it`;
          for (const each of this.#wanted.ownersOf(address)) this.#fail(each, each, words);
          owe();
        } else {
          const create = () => (reason === "vip" ? make.vip(address) : make.remote(address));
          await this.#attempt(owner, owner, create, owe, `; endpoint for ${address}`);
        }
      }
    });
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

  /** @returns load balancers that nothing wants any more. */
  async #putLoadBalancers(host: HostState, keys: ReadonlySet<string>, signal: AbortSignal): Promise<readonly Guid[]> {
    const { loadBalancers, yielder } = this.#options;
    const gone: Guid[] = [];
    const work: Work[] = [];
    for (const key of keys) {
      const wanted = this.#wanted.loadBalancers.effective(key);
      const found = host.loadBalancers.at(key);
      if (wanted === undefined) {
        if (found !== undefined && !isForeign(found, host)) gone.push(found.id);
        continue;
      }
      const settings = resolve(host, wanted.value);
      // Nothing of it is there yet: what it had stays, as far as it still leads anywhere.
      if (settings.endpoints.length === 0) continue;
      if (found !== undefined && loadBalancers.isSettled(found, settings)) continue;
      const isHealthCheck = this.#wanted.loadBalancers.get(key)?.kind === "health-check";
      work.push({ key, owner: wanted.owner, isHealthCheck, settings, found });
      if (yielder.isDue()) await yielder.turn(signal);
    }
    const { canModify } = loadBalancers;
    const rank = ({ settings, found }: Work): number =>
      (found === undefined ? 2 : canModify ? 0 : 1) * 2 + Number(settings.frontendVip === undefined);
    for (const one of work.sort((a, b) => rank(a) - rank(b))) {
      signal.throwIfAborted();
      await this.#put(host, one);
    }
    return gone;
  }

  async #put(host: HostState, { key, owner, isHealthCheck, settings }: Work): Promise<void> {
    const put = () => this.#options.loadBalancers.put(host, key, settings);
    if (!isHealthCheck) {
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
