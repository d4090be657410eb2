/**
 * Devices and addresses of one network namespace in memory. Behaves like the kernel (`testing/links-contract.ts`);
 * tests can make it reject addresses and act as other programs.
 */

import {
  type AddressToRemove,
  type LinkAddress,
  type LinkAddressFailure,
  type LinkDescription,
  type Links,
  linkFailure,
  noDummyDevices,
  notADummy,
  withPrefixLength,
} from "../../../src/kernel/route/links.ts";
import { familyOf, type IpAddress, type IpFamily } from "../../../src/net/ip.ts";

/** Decides by returning an errno's name whether a change of an address is rejected, in any state. */
export type LinkFault = (change: {
  readonly kind: "add" | "remove";
  readonly link: string;
  readonly address: IpAddress;
}) => string | undefined;

export interface MemoryLinksOptions {
  /** `false`: a kernel without dummy devices. @default true */
  readonly hasDummy?: boolean;
}

interface Device {
  readonly description: LinkDescription;
  readonly addresses: Map<string, LinkAddress>;
  /** Addresses whose route to the node itself another program has removed; keys as in `addresses`. */
  readonly unrouted: Set<string>;
}

export class MemoryLinks implements Links {
  readonly #hasDummy: boolean;
  readonly #devices = new Map<string, Device>();
  readonly #watchers = new Set<(link: string | undefined) => void>();
  readonly #faults = new Set<LinkFault>();
  #nextIndex = 1;
  #messages = 0;

  /** A namespace with a loopback device and its addresses. */
  constructor(options: MemoryLinksOptions = {}) {
    this.#hasDummy = options.hasDummy ?? true;
    this.addForeignLink("lo", undefined);
    this.addForeignAddress("lo", "127.0.0.1" as IpAddress, 8); // canonical literals
    this.addForeignAddress("lo", "::1" as IpAddress, 128);
  }

  /** Number of requests so far, including reads: what a netlink implementation would send. */
  get messages(): number {
    return this.#messages;
  }

  /** From now on rejects changes for which `fault` returns a code. @returns a function that ends that. */
  refuse(fault: LinkFault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** Another program adds a device that is up. */
  addForeignLink(name: string, kind: string | undefined): void {
    this.#create(name, kind, true);
    this.#announce(name);
  }

  /** Another program deletes a device along with its addresses. */
  deleteForeignLink(name: string): void {
    if (this.#devices.delete(name)) this.#announce(name);
  }

  /** Another program adds an address. Throws if there is no such device. */
  addForeignAddress(link: string, address: IpAddress, prefixLength: number): void {
    const device = this.#devices.get(link);
    if (device === undefined) throw new Error(`no device ${link}`);
    device.addresses.set(`${address}/${prefixLength}`, { address, prefixLength, link });
    this.#announce(link);
  }

  /** Another program removes an address of any prefix length. */
  removeForeignAddress(link: string, address: IpAddress): void {
    const addresses = this.#devices.get(link)?.addresses ?? new Map<string, LinkAddress>();
    for (const [key, found] of addresses) if (found.address === address) addresses.delete(key);
    this.#announce(link);
  }

  /** Another program removes the route of an address to the node itself. */
  removeForeignRoute(link: string, address: IpAddress): void {
    const device = this.#devices.get(link);
    for (const [key, found] of device?.addresses ?? []) if (found.address === address) device?.unrouted.add(key);
  }

  /** Announcements were lost. */
  loseAnnouncements(): void {
    this.#announce(undefined);
  }

  async link(name: string): Promise<LinkDescription | undefined> {
    this.#messages++;
    return this.#devices.get(name)?.description;
  }

  async ensureDummy(name: string): Promise<void> {
    this.#messages++;
    const existing = this.#devices.get(name);
    if (existing !== undefined) return checkIsDummy(existing);
    this.#messages++;
    if (!this.#hasDummy) throw noDummyDevices(name);
    this.#create(name, "dummy", false);
    this.#announce(name);
  }

  async deleteDummy(name: string): Promise<void> {
    this.#messages++;
    const existing = this.#devices.get(name);
    if (existing === undefined) return;
    checkIsDummy(existing);
    this.#messages++;
    this.#devices.delete(name);
    this.#announce(name);
  }

  async addresses(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]> {
    signal?.throwIfAborted();
    this.#messages++;
    const all = [...this.#devices.values()].flatMap(({ addresses }) => [...addresses.values()]);
    return all.filter(({ address }) => familyOf(address) === family);
  }

  async localRoutes(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]> {
    signal?.throwIfAborted();
    this.#messages++;
    const all = [...this.#devices.values()].flatMap(({ addresses, unrouted }) =>
      [...addresses].flatMap(([key, found]) => (unrouted.has(key) ? [] : [found])),
    );
    return all
      .filter(({ address }) => familyOf(address) === family)
      .map((found) => ({ ...found, prefixLength: family === "IPv4" ? 32 : 128 }));
  }

  async addAddresses(link: string, addresses: readonly IpAddress[]): Promise<readonly LinkAddressFailure[]> {
    return this.#change("add", link, addresses, (device, address, prefixLength) => {
      // A device has an IPv6 address only once, with any prefix length: adding it again is no failure and does nothing (ipv6_add_addr).
      const isThere = [...device.addresses.values()].some((found) => found.address === address);
      if (familyOf(address) === "IPv6" && isThere) return;
      device.addresses.set(`${address}/${prefixLength}`, { address, prefixLength, link });
    });
  }

  async removeAddresses(link: string, addresses: readonly AddressToRemove[]): Promise<readonly LinkAddressFailure[]> {
    return this.#change("remove", link, addresses, (device, address, prefixLength) => {
      device.addresses.delete(`${address}/${prefixLength}`);
      device.unrouted.delete(`${address}/${prefixLength}`);
    });
  }

  async watch(onChange: (link: string | undefined) => void, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.#watchers.add(onChange);
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    this.#watchers.delete(onChange);
  }

  async close(): Promise<void> {}

  #create(name: string, kind: string | undefined, isUp: boolean): void {
    const description = { name, index: this.#nextIndex++, kind, isUp };
    this.#devices.set(name, { description, addresses: new Map(), unrouted: new Set() });
  }

  #change(
    kind: "add" | "remove",
    link: string,
    addresses: readonly AddressToRemove[],
    apply: (device: Device, address: IpAddress, prefixLength: number) => void,
  ): readonly LinkAddressFailure[] {
    const device = this.#devices.get(link);
    const failures: LinkAddressFailure[] = [];
    for (const asked of addresses) {
      const { address, prefixLength } = withPrefixLength(asked);
      this.#messages++;
      const code = device === undefined ? "ENODEV" : this.#fault(kind, link, address);
      if (code !== undefined) failures.push(linkFailure(kind, link, address, code));
      else if (device !== undefined) {
        apply(device, address, prefixLength);
        if (familyOf(address) === "IPv6") this.#announce(link);
      }
    }
    return failures;
  }

  #fault(kind: "add" | "remove", link: string, address: IpAddress): string | undefined {
    for (const fault of this.#faults) {
      const code = fault({ kind, link, address });
      if (code !== undefined) return code;
    }
    return undefined;
  }

  #announce(link: string | undefined): void {
    for (const onChange of [...this.#watchers]) onChange(link);
  }
}

function checkIsDummy({ description: { name, kind } }: Device): void {
  if (kind !== "dummy") throw notADummy(name, kind);
}
