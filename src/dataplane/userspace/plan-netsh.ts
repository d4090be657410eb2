/**
 * The `netsh` commands that give a Windows host service addresses: reference userspace.md §2. Pure.
 *
 * Not upstream's: an address is given back only when no portal of any service port wants it (userspace.md §2), and never one that the
 * host had before.
 */
import { familyOf, type IpAddress, parseIpAddress } from "../../net/ip.ts";

export interface NetshCommand {
  readonly file: "netsh";
  readonly args: readonly string[];
}

/** The interface that takes the addresses, unless INTERFACE_TO_ADD_SERVICE_IP names another. */
export const DEFAULT_INTERFACE = "vEthernet (HNS Internal NIC)";

const ipv4 = (verb: string, interfaceName: string, ...words: readonly string[]): NetshCommand => ({
  file: "netsh",
  args: ["interface", "ipv4", verb, "address", `name=${interfaceName}`, ...words],
});

/** Lists the interface's addresses. */
export function showAddresses(interfaceName: string): NetshCommand {
  return ipv4("show", interfaceName);
}

/** The addresses in the output of {@link showAddresses}: what stands behind the colon in a line with `IP`. */
export function shownAddresses(output: string): ReadonlySet<IpAddress> {
  const found = new Set<IpAddress>();
  for (const line of output.split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 0 || !line.includes("IP")) continue;
    const address = parseIpAddress(line.slice(colon + 1).trim());
    if (address !== undefined) found.add(address);
  }
  return found;
}

export interface AddressFacts {
  readonly interfaceName: string;
  /** What the host has, on this interface or another. */
  readonly present: ReadonlySet<IpAddress>;
  /** What we gave it. */
  readonly assigned: ReadonlySet<IpAddress>;
  /** What the portals of all service ports want. */
  readonly wanted: ReadonlySet<IpAddress>;
}

export interface AddressPlan {
  readonly remove: ReadonlyMap<IpAddress, NetshCommand>;
  readonly add: ReadonlyMap<IpAddress, NetshCommand>;
  /** IPv6: upstream has no command for it. */
  readonly unsupported: readonly IpAddress[];
}

/** What takes the interface from what it has to what is wanted. */
export function planAddresses({ interfaceName, present, assigned, wanted }: AddressFacts): AddressPlan {
  const missing = [...wanted].filter((address) => !present.has(address));
  const unused = [...assigned].filter((address) => !wanted.has(address));
  const commands = (verb: "add" | "delete", addresses: readonly IpAddress[]) =>
    new Map(addresses.map((address) => [address, ipv4(verb, interfaceName, `address=${address}`)]));
  return {
    remove: commands("delete", unused),
    add: commands(
      "add",
      missing.filter((address) => familyOf(address) === "IPv4"),
    ),
    unsupported: missing.filter((address) => familyOf(address) === "IPv6"),
  };
}
