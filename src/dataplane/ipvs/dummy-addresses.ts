/** The addresses of one family on kube-ipvs0: where they differ from what is wanted, and the changes that end it. */
import type { LinkAddress, LinkAddressFailure, Links } from "../../kernel/route/links.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, cidrContains, familyOf, type IpAddress } from "../../net/ip.ts";
import type { KeyOwners } from "../shared/key-owners.ts";
import { Doubt } from "../shared/reconciler.ts";
import { DUMMY_DEVICE } from "./names.ts";
import type { NodeState } from "./node-facts.ts";

export interface AddressDifference {
  readonly bind: readonly IpAddress[];
  /** On the device, but not the node's: their routes have been removed, and come back only with the address. */
  readonly rebind: readonly IpAddress[];
  readonly unbind: readonly IpAddress[];
  /** Not as whole addresses (/32, /128), which nothing of ours is: foreign, even where the address is wanted. */
  readonly foreign: readonly LinkAddress[];
}

/** An address that is not as wanted, and why. */
export type AddressFailures = ReadonlyMap<IpAddress, string>;

export class DummyAddresses {
  readonly #links: Links;
  /** Bound again and still without a route. Binding does not help there, so it is not repeated. */
  readonly #unroutable = new Set<IpAddress>();
  readonly #doubt = new Doubt<IpAddress>();

  constructor(links: Links) {
    this.#links = links;
  }

  /** Whether the kernel has refused it. */
  isInDoubt(address: IpAddress): boolean {
    return this.#doubt.has(address);
  }

  /** Compares with what the node has now. */
  compareAll(wanted: KeyOwners<IpAddress>, { bound, routed, foreign }: NodeState): AddressDifference {
    this.#doubt.take();
    const all = Array.from(wanted.allEffective(), ({ value }) => value);
    for (const address of this.#unroutable) if (routed.has(address)) this.#unroutable.delete(address);
    return {
      bind: all.filter((address) => !bound.has(address)),
      rebind: all.filter((address) => bound.has(address) && !routed.has(address) && !this.#unroutable.has(address)),
      unbind: [...bound].filter((address) => !wanted.has(address)),
      foreign,
    };
  }

  /** Adding what is there and removing what is not are no failures, so that nothing needs to be asked. */
  compareTouched(wanted: KeyOwners<IpAddress>): AddressDifference {
    const bind: IpAddress[] = [];
    const unbind: IpAddress[] = [];
    const doubtful = this.#doubt.take();
    for (const [key, before] of wanted.touched) {
      const after = wanted.get(key);
      if (before === undefined && after !== undefined && !doubtful.has(after)) bind.push(after);
      if (before !== undefined && after === undefined && !doubtful.has(before)) unbind.push(before);
    }
    for (const address of doubtful.keys()) (wanted.has(address) ? bind : unbind).push(address);
    return { bind, rebind: [], unbind, foreign: [] };
  }

  /** Adds addresses, and the device should it be gone. */
  async bind({ bind, rebind, foreign }: Omit<AddressDifference, "unbind">): Promise<AddressFailures> {
    const add = [...rebind, ...bind];
    const wanted = new Set(foreign.length > 0 ? bind : []);
    // An IPv6 address is on a device once: as a whole address only when it has gone with another prefix length.
    const inTheWay = foreign.filter(({ address }) => familyOf(address) === "IPv6" && wanted.has(address));
    const first = [...rebind, ...inTheWay];
    if (first.length > 0) await this.#links.removeAddresses(DUMMY_DEVICE, first);
    let failures = add.length === 0 ? [] : await this.#links.addAddresses(DUMMY_DEVICE, add);
    if (failures.some(({ code }) => code === "ENODEV")) {
      await this.#links.ensureDummy(DUMMY_DEVICE);
      failures = await this.#links.addAddresses(DUMMY_DEVICE, add);
    }
    await this.#noteUnroutable(rebind);
    return this.#doubted(failures);
  }

  async #noteUnroutable(rebound: readonly IpAddress[]): Promise<void> {
    const [first] = rebound;
    if (first === undefined) return;
    const routed = new Set((await this.#links.localRoutes(familyOf(first))).map(({ address }) => address));
    for (const address of rebound) if (!routed.has(address)) this.#unroutable.add(address);
  }

  /** Removes addresses. Comes after {@link DummyAddresses.bind}. */
  async unbind({ unbind, foreign }: Pick<AddressDifference, "unbind" | "foreign">): Promise<AddressFailures> {
    const all = [...foreign, ...unbind];
    const refused = all.length === 0 ? [] : await this.#links.removeAddresses(DUMMY_DEVICE, all);
    const failures = refused.filter(({ code }) => code !== "ENODEV");
    return this.#doubted(failures);
  }

  #doubted(failures: readonly LinkAddressFailure[]): AddressFailures {
    for (const { address } of failures) this.#doubt.add(address, address);
    return new Map(failures.map(({ address, message }) => [address, message]));
  }
}

/** What an operator should know of addresses that services share with the node or with others: said once for each port. */
export class AddressWarnings {
  readonly #excludeCIDRs: readonly Cidr[];
  readonly #log: Logger;
  #devices: ReadonlyMap<IpAddress, string> = new Map();
  /** By service port: what was said last. */
  readonly #said = new Map<string, string>();

  constructor(excludeCIDRs: readonly Cidr[], log: Logger) {
    this.#excludeCIDRs = excludeCIDRs;
    this.#log = log;
  }

  /** Looks at every service port. @param devices the device that has an address, kube-ipvs0 left out. */
  report(services: ReadonlyMap<string, ServicePort>, devices: ReadonlyMap<IpAddress, string>): void {
    this.#devices = devices;
    this.update(new Set([...services.keys(), ...this.#said.keys()]), services);
  }

  /** Looks at the service ports that changed. */
  update(keys: Iterable<string>, services: ReadonlyMap<string, ServicePort>): void {
    if (this.#excludeCIDRs.length + this.#devices.size === 0) return;
    for (const key of keys) {
      const port = services.get(key);
      if (port === undefined) this.#said.delete(key);
      else this.#look(key, port);
    }
  }

  #look(key: string, port: ServicePort): void {
    const { clusterIP, externalIPs, loadBalancerVIPs } = port;
    const hasExternal = externalIPs.length + loadBalancerVIPs.length > 0;
    // Most ports have nothing to report, and there are many of them.
    if (!hasExternal && this.#excludeCIDRs.length === 0 && !this.#devices.has(clusterIP)) return;
    const external = [...externalIPs, ...loadBalancerVIPs];
    const excluded = [clusterIP, ...external].filter((ip) => this.#excludeCIDRs.some((cidr) => cidrContains(cidr, ip)));
    const held = external.filter((ip) => this.#devices.has(ip));
    const clusterDevice = this.#devices.get(clusterIP);
    const warning = `${excluded.join()} ${held.join()} ${clusterDevice ?? ""}`;
    if (this.#said.get(key) === warning || warning === "  ") return;
    this.#said.set(key, warning);
    const servicePort = port.name.text;
    if (excluded.length > 0) {
      this.#log.warn(
        "excludeCIDRs has addresses of a service: they are served, but their virtual servers will stay when the service is gone",
        { servicePort, addresses: excluded.join(", ") },
      );
    }
    if (held.length > 0) {
      this.#log.info(`External addresses of a service are on another device and are not bound to ${DUMMY_DEVICE}`, {
        servicePort,
        addresses: held.map((ip) => `${ip} on ${this.#devices.get(ip)}`).join(", "),
      });
    }
    if (clusterDevice !== undefined) {
      this.#log.warn(`The cluster IP of a service is on another device, too, besides ${DUMMY_DEVICE}`, {
        servicePort,
        clusterIP,
        device: clusterDevice,
      });
    }
  }
}
