/**
 * Network devices and their addresses in one network namespace. Two implementations, rtnetlink (`netlink-links.ts`) and
 * memory (`memory-links.ts`), pass the same contract test. This layer knows nothing about Services.
 */
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";

/** An address on a device, or the destination of a route to it. */
export interface LinkAddress {
  readonly address: IpAddress;
  readonly prefixLength: number;
  /** The device's name. */
  readonly link: string;
}

/** The kernel removes an address only with the prefix length that it was added with. @default the full length */
export type AddressToRemove = IpAddress | Pick<LinkAddress, "address" | "prefixLength">;

export interface LinkDescription {
  readonly name: string;
  readonly index: number;
  /** IFLA_INFO_KIND: `dummy`, `veth`, `bridge`, …; `undefined` for devices without one (loopback, hardware). */
  readonly kind: string | undefined;
  readonly isUp: boolean;
}

export interface LinkAddressFailure {
  readonly address: IpAddress;
  /** The errno's name. */
  readonly code: string;
  /** A sentence that names the address, the device and the cause. */
  readonly message: string;
}

export interface Links {
  /** `undefined` if there is no such device. */
  link(name: string): Promise<LinkDescription | undefined>;
  /**
   * Creates a dummy device, down, unless it exists. Throws an Error that names the kernel module if the kernel has no
   * dummy devices, and one that names the kind if a device of that name is not a dummy.
   */
  ensureDummy(name: string): Promise<void>;
  /** Deletes a dummy device, if it exists. Throws if the device is of another kind. */
  deleteDummy(name: string): Promise<void>;
  /** All addresses of the family, on all devices, up or down. */
  addresses(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]>;
  /**
   * Routes to the node itself (type `local`, table `local`): destinations and their devices. The kernel adds one for each
   * address of a device. If another program removes the route, the node no longer accepts packets to the address.
   */
  localRoutes(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]>;
  /** Adds the addresses as /32 or /128, many per system call; an address that the device already has is no failure. */
  addAddresses(link: string, addresses: readonly IpAddress[]): Promise<readonly LinkAddressFailure[]>;
  /** Removes the addresses; one that the device does not have is no failure. */
  removeAddresses(link: string, addresses: readonly AddressToRemove[]): Promise<readonly LinkAddressFailure[]>;
  /**
   * Watches devices and addresses of the namespace until the signal aborts. `onChange` gets the name of the changed or
   * deleted device, or `undefined` if notifications were lost and anything may have changed. This object's own changes are
   * reported too, except those of IPv4 addresses: the kernel does not tell who changed an IPv6 address.
   */
  watch(onChange: (link: string | undefined) => void, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** Fills in the full prefix length where none is given. */
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

/** The error if the kernel has no dummy devices. */
export function noDummyDevices(name: string, options?: ErrorOptions): Error {
  return new Error(
    `cannot create the device ${name}: the kernel has no dummy devices: load the module "dummy" (modprobe dummy)`,
    options,
  );
}

/** The error if the device is of another kind. */
export function notADummy(name: string, kind: string | undefined): Error {
  const what = kind === undefined ? "no virtual device" : `a ${kind} device`;
  return new Error(`the device ${name} is ${what}, a dummy device is needed: delete or rename it`);
}
