/**
 * Network devices and their addresses in one network namespace. Two implementations, rtnetlink (`netlink-links.ts`) and
 * memory (`memory-links.ts`), pass one contract test. Knows nothing of Services.
 */
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";

/** An address on a device, or the destination of a route to it. */
export interface LinkAddress {
  readonly address: IpAddress;
  readonly prefixLength: number;
  /** The device's name. */
  readonly link: string;
}

/** An address that was added with another prefix length can only be removed with that. */
export type AddressToRemove = IpAddress | Pick<LinkAddress, "address" | "prefixLength">;

export interface LinkDescription {
  readonly name: string;
  readonly index: number;
  /** IFLA_INFO_KIND: `dummy`, `veth`, `bridge`, …; `undefined` for devices without one (loopback, hardware). */
  readonly kind: string | undefined;
  readonly isUp: boolean;
}

/** An address that could not be added or removed. */
export interface LinkAddressFailure {
  readonly address: IpAddress;
  /** The errno's name. */
  readonly code: string;
  /** Names the address, the device and the cause, in words. */
  readonly message: string;
}

export interface Links {
  /** `undefined` when there is no such device. */
  link(name: string): Promise<LinkDescription | undefined>;
  /**
   * Creates a dummy device, down, unless a device of that name exists. Throws an Error that names the kernel module when the
   * kernel has no dummy devices, and one that names the kind when the device is something else.
   */
  ensureDummy(name: string): Promise<void>;
  /** Deletes the device if it is a dummy; a missing one is no error, one of another kind is. */
  deleteDummy(name: string): Promise<void>;
  /** Every address of the family, on all devices, up or down. */
  addresses(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]>;
  /**
   * Routes to the node itself (type `local`, table `local`): destinations and the devices that they lead to. The kernel makes
   * one for each address that a device gets; an address whose route another program has removed is not the node's own any more.
   */
  localRoutes(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]>;
  /** Adds them as /32 or /128, many to a system call; an address that the device has is no failure. */
  addAddresses(link: string, addresses: readonly IpAddress[]): Promise<readonly LinkAddressFailure[]>;
  /** Removes them, as /32 or /128 unless a prefix length is given; an address that the device lacks is no failure. */
  removeAddresses(link: string, addresses: readonly AddressToRemove[]): Promise<readonly LinkAddressFailure[]>;
  /**
   * Watches devices and addresses of the namespace until the signal aborts; `onChange` gets the name of the device that was
   * changed or deleted, or `undefined` when announcements were lost and anything may have changed. What this object itself
   * does is announced as well, but for IPv4 addresses: the kernel does not say who changed an IPv6 address.
   */
  watch(onChange: (link: string | undefined) => void, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** With the length of a whole address where none is given. Pure. */
export function withPrefixLength(asked: AddressToRemove): Pick<LinkAddress, "address" | "prefixLength"> {
  return typeof asked === "string" ? { address: asked, prefixLength: fullLength(asked) } : asked;
}

export function fullLength(address: IpAddress): number {
  return familyOf(address) === "IPv4" ? 32 : 128;
}

const CAUSES: Readonly<Record<string, string>> = {
  ENODEV: "there is no such device",
  EACCES: "IPv6 is disabled on the device",
  EPERM: "not permitted, this needs CAP_NET_ADMIN",
};

/** @param what as in "cannot what". */
export function linkFailure(
  what: "add" | "remove",
  link: string,
  address: IpAddress,
  code: string,
): LinkAddressFailure {
  const where = what === "add" ? `to ${link}` : `from ${link}`;
  const cause = CAUSES[code];
  return {
    address,
    code,
    message: `cannot ${what} ${address} ${where}: ${cause === undefined ? code : `${cause} (${code})`}`,
  };
}

/** The kernel has no dummy devices. */
export function noDummyDevices(name: string, options?: ErrorOptions): Error {
  return new Error(
    `cannot create the device ${name}: the kernel has no dummy devices: load the module "dummy" (modprobe dummy)`,
    options,
  );
}

/** The name belongs to a device of another kind. */
export function notADummy(name: string, kind: string | undefined): Error {
  const what = kind === undefined ? "no virtual device" : `a ${kind} device`;
  return new Error(`the device ${name} is ${what}, a dummy device is needed: delete or rename it`);
}
