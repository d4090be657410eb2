/** The node's identity: its name, its addresses and its primary family (reference node.md §8). */

import {
  familyOf,
  hostCidr,
  type IpAddress,
  type IpFamily,
  ipFromBytes,
  isLoopback,
  isUnspecified,
  parseIpAddress,
} from "../net/ip.ts";
import type { NodeRecord } from "./objects.ts";

/** One address per family; loopback if unknown. */
export interface NodeAddresses {
  readonly primaryFamily: IpFamily;
  readonly ips: Readonly<Record<IpFamily, IpAddress>>;
}

const INTERNAL = "InternalIP";
const EXTERNAL = "ExternalIP";
const IPV4_LOOPBACK = ipFromBytes(Uint8Array.of(127, 0, 0, 1));
const IPV6_LOOPBACK = ipFromBytes(new Uint8Array(16).fill(1, 15));

/**
 * The name of this node's Node object (node.md §8.1).
 *
 * @param override `hostnameOverride`; empty means the host's own name.
 * @throws Error if nothing is left after trimming.
 */
export function nodeNameFrom(override: string, hostname: string): string {
  const name = (override === "" ? hostname : override).trim().toLowerCase();
  if (name === "") throw new Error("empty hostname is invalid");
  return name;
}

/**
 * The usable addresses of a Node object: the primary one first, then at most one of the other family (node.md §8.2).
 * Internal addresses come before external ones; invalid ones are dropped.
 */
export function nodeIPsOf(node: Pick<NodeRecord, "addresses">): readonly IpAddress[] {
  const ordered = [INTERNAL, EXTERNAL].flatMap((type) => node.addresses.filter((address) => address.type === type));
  const ips = ordered.map(({ address }) => parseIpAddress(address)).filter((ip) => ip !== undefined);
  const [primary] = ips;
  if (primary === undefined) return [];
  const secondary = ips.find((ip) => familyOf(ip) !== familyOf(primary));
  return secondary === undefined ? [primary] : [primary, secondary];
}

/**
 * The node's effective addresses (node.md §8.4): a specified `bindAddress` overrides the address of its family and makes
 * that family primary.
 *
 * @param nodeIPs from {@link nodeIPsOf}.
 */
export function effectiveNodeAddresses(nodeIPs: readonly IpAddress[], bindAddress: string): NodeAddresses {
  const bound = parseIpAddress(bindAddress);
  const isBound = bound !== undefined && !isUnspecified(bound);
  const preferred = isBound ? [bound, ...nodeIPs] : nodeIPs;
  const [first] = preferred;
  return {
    primaryFamily: first === undefined ? "IPv4" : familyOf(first),
    ips: {
      IPv4: preferred.find((ip) => familyOf(ip) === "IPv4") ?? IPV4_LOOPBACK,
      IPv6: preferred.find((ip) => familyOf(ip) === "IPv6") ?? IPV6_LOOPBACK,
    },
  };
}

/** The node's addresses as prefixes, without loopback: the meaning of `primary` in `nodePortAddresses` (node.md §9). */
export function primaryCidrs({ ips }: NodeAddresses): readonly string[] {
  return [ips.IPv4, ips.IPv6].filter((ip) => !isLoopback(ip)).map(hostCidr);
}

/** All addresses of a Node object but loopback ones. */
export function addressesOf({ addresses }: Pick<NodeRecord, "addresses">): readonly IpAddress[] {
  return addresses.flatMap(({ address }) => parseIpAddress(address) ?? []).filter((address) => !isLoopback(address));
}
