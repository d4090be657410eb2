/** Compares and reconciles the addresses of one family on kube-ipvs0. */
import type { LinkAddress, LinkAddressFailure, Links } from "../../kernel/route/links.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { KeyOwners } from "../../model/key-owners.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, cidrContains, familyOf, type IpAddress } from "../../net/ip.ts";
import type { PortWarning } from "../shared/port-warnings.ts";
import { DUMMY_DEVICE } from "./names.ts";
import type { IpvsFacts, NodeState } from "./node-facts.ts";
import type { IpvsOptions } from "./options.ts";
import type { PartFailure } from "./wanted.ts";

export interface AddressDifference {
  readonly bind: readonly IpAddress[];
  /** On the device, but not local: their routes were removed, and only a new binding restores them. */
  readonly rebind: readonly IpAddress[];
  readonly unbind: readonly IpAddress[];
  /** With a prefix length other than /32 or /128, so not ours, even if the address is wanted. */
  readonly foreign: readonly LinkAddress[];
}

export class DummyAddresses {
  readonly #links: Links;
  /** Still without a route after a new binding, which is therefore not repeated. */
  readonly #unroutable = new Set<IpAddress>();
  /** Addresses for which the kernel rejected a change. */
  #doubt = new Set<IpAddress>();

  constructor({ links }: IpvsOptions) {
    this.#links = links;
  }

  /** Whether the kernel rejected a change of the address. */
  isInDoubt(address: IpAddress): boolean {
    return this.#doubt.has(address);
  }

  /** Compares with the current state of the node. */
  compareAll(wanted: KeyOwners<IpAddress>, { bound, routed, foreign }: NodeState): AddressDifference {
    this.#doubt = new Set();
    const all = Array.from(wanted.entries(), ([, { value }]) => value);
    for (const address of this.#unroutable) if (routed.has(address)) this.#unroutable.delete(address);
    return {
      bind: all.filter((address) => !bound.has(address)),
      rebind: all.filter((address) => bound.has(address) && !routed.has(address) && !this.#unroutable.has(address)),
      unbind: [...bound].filter((address) => !wanted.has(address)),
      foreign,
    };
  }

  /** Works without reading the kernel: adding a present address or removing a missing one is not an error. */
  compareTouched(wanted: KeyOwners<IpAddress>): AddressDifference {
    const bind: IpAddress[] = [];
    const unbind: IpAddress[] = [];
    const doubtful = this.#doubt;
    this.#doubt = new Set();
    for (const [key, before] of wanted.touched) {
      const after = wanted.get(key);
      if (before === undefined && after !== undefined && !doubtful.has(after)) bind.push(after);
      if (before !== undefined && after === undefined && !doubtful.has(before)) unbind.push(before);
    }
    for (const address of doubtful) (wanted.has(address) ? bind : unbind).push(address);
    return { bind, rebind: [], unbind, foreign: [] };
  }

  /** Adds addresses, and the device if it is gone. */
  async bind({ bind, rebind, foreign }: AddressDifference): Promise<readonly PartFailure[]> {
    const add = [...rebind, ...bind];
    const wanted = new Set(foreign.length > 0 ? bind : []);
    // A device has an IPv6 address only once: one with another prefix length must be removed before the /128.
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
  async unbind({ unbind, foreign }: AddressDifference): Promise<readonly PartFailure[]> {
    const all = [...foreign, ...unbind];
    const refused = all.length === 0 ? [] : await this.#links.removeAddresses(DUMMY_DEVICE, all);
    const failures = refused.filter(({ code }) => code !== "ENODEV");
    return this.#doubted(failures);
  }

  #doubted(failures: readonly LinkAddressFailure[]): readonly PartFailure[] {
    for (const { address } of failures) this.#doubt.add(address);
    return failures.map(({ address, message }) => ({ kind: "addresses", key: address, reason: message }));
  }
}

/** Addresses of endpoints on other nodes. */
export function addressesElsewhere(endpoints: Iterable<readonly Endpoint[]>): ReadonlySet<IpAddress> {
  const found = new Set<IpAddress>();
  for (const own of endpoints) for (const { ip, isLocal } of own) if (!isLocal) found.add(ip);
  return found;
}

/**
 * Warnings about addresses of a service port that the node also has, that excludeCIDRs contains, or that another node has or may have:
 * it is an endpoint's there or, where the other Nodes are not known, in a network of this node.
 */
export function addressWarnings(
  { name, clusterIP, externalIPs, loadBalancerVIPs }: ServicePort,
  excludeCIDRs: readonly Cidr[],
  { devices, networks, otherNodes }: Pick<IpvsFacts, "devices" | "networks" | "otherNodes">,
  elsewhere: ReadonlySet<IpAddress>,
): readonly PortWarning[] {
  const external = [...externalIPs, ...loadBalancerVIPs];
  const excluded = [clusterIP, ...external].filter((ip) => excludeCIDRs.some((cidr) => cidrContains(cidr, ip)));
  const held = external.filter((ip) => devices.has(ip));
  const device = devices.get(clusterIP);
  const { text: servicePort, service } = name;
  const warnings: PortWarning[] = [];
  if (excluded.length > 0) {
    const message =
      "excludeCIDRs contains addresses of a service: they are served, but their virtual servers will remain after the service is deleted";
    warnings.push({ message, facts: { servicePort, addresses: excluded.join(", ") } });
  }
  if (held.length > 0) {
    const message = `External addresses of a service are on another device and are not bound to ${DUMMY_DEVICE}`;
    const addresses = held.map((ip) => `${ip} on ${devices.get(ip)}`).join(", ");
    warnings.push({ message, facts: { servicePort, addresses }, isInfo: true });
  }
  for (const address of external.filter((ip) => !devices.has(ip))) {
    const node = otherNodes?.get(address);
    const [network, link] = [...networks].find(([cidr]) => cidrContains(cidr, address)) ?? [];
    if (node !== undefined) {
      const message = `An external address of a service is another Node's and is not bound to ${DUMMY_DEVICE}`;
      warnings.push({ message, facts: { service, address, node } });
    } else if (elsewhere.has(address)) {
      const message = `An external address of a service is another node's: ${DUMMY_DEVICE} takes it, so this node and its pods cannot reach that node`;
      warnings.push({ message, facts: { service, address } });
    } else if (network !== undefined && (otherNodes?.size ?? 0) === 0) {
      const message = `An external address of a service is in a network of this node and is bound to ${DUMMY_DEVICE}: if another node has it, this node and its pods cannot reach that node`;
      warnings.push({ message, facts: { service, address, network, link } });
    }
  }
  if (device !== undefined) {
    const message = `The cluster IP of a service is on another device in addition to ${DUMMY_DEVICE}`;
    warnings.push({ message, facts: { servicePort, clusterIP, device } });
  }
  return warnings;
}
