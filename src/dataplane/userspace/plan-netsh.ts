/**
 * The `netsh` commands that give a Windows host service addresses: reference userspace.md §2. Pure.
 *
 * Not upstream's: an address is one host and not a network of its class, no connection of the host's own begins at it, and a restart of
 * Windows removes it; it is given back only when no portal of any service port wants it, and never when the host had it before; IPv6.
 */
import { familyOf, type IpAddress } from "../../net/ip.ts";

/** The words after `netsh`. */
export type NetshWords = readonly string[];

/** The interface that takes the addresses, unless INTERFACE_TO_ADD_SERVICE_IP names another. */
export const DEFAULT_INTERFACE = "vEthernet (HNS Internal NIC)";

/** Gives the interface an address. */
export function addAddress(interfaceName: string, address: IpAddress): NetshWords {
  const rest = ["store=active", "skipassource=true"];
  return familyOf(address) === "IPv4"
    ? [...words("ipv4", "add", interfaceName), `address=${address}`, "mask=255.255.255.255", ...rest]
    : [...words("ipv6", "add", interfaceName), `address=${address}/128`, ...rest];
}

/** Takes it back. */
export function deleteAddress(interfaceName: string, address: IpAddress): NetshWords {
  return [...words(familyOf(address) === "IPv4" ? "ipv4" : "ipv6", "delete", interfaceName), `address=${address}`];
}

const words = (family: "ipv4" | "ipv6", verb: string, interfaceName: string): NetshWords => [
  ...["interface", family, verb, "address"],
  `${family === "ipv4" ? "name" : "interface"}=${interfaceName}`,
];

/**
 * Commands as the lines of a script for `netsh -f`, which does them all in one process.
 *
 * @returns undefined for words that such a file cannot hold without doubt: it has no encoding of its own.
 */
export function netshScript(commands: Iterable<NetshWords>): string | undefined {
  const lines: string[] = [];
  for (const command of commands) {
    if (command.some((word) => !/^[ !#-~]*$/.test(word))) return undefined;
    lines.push(command.map((word) => word.replace(/^(\w+)=(.* .*)$/, '$1="$2"')).join(" "));
  }
  return `${lines.join("\r\n")}\r\n`;
}
