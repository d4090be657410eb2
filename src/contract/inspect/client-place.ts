/** Gives clients that are named instead of addressed (`pod`, `node`, `outside`) an address and an interface they may have. */
import { addressAt, type Cidr, familyOf, type IpAddress, type IpFamily, parseCidr } from "../../net/ip.ts";
import type { OfflineNode } from "./offline-node.ts";

/** Clients that have a name instead of an address. */
export const CLIENT_KINDS = ["pod", "node", "outside"] as const;
export type ClientKind = (typeof CLIENT_KINDS)[number];

/** What a client's name stands for on this node. */
export interface ClientPlace {
  readonly address: IpAddress;
  /** Undefined: not known. */
  readonly inInterface: string | undefined;
}

/** Clients outside get an address reserved for documentation (RFC 5737, RFC 3849). */
export const OUTSIDE = { IPv4: "203.0.113.77", IPv6: "2001:db8::77" } as const satisfies Record<IpFamily, string>;

/** @param podCIDRs of the node. @returns undefined for a pod if no pod network of this family is known. */
export function clientPlace(
  position: ClientKind,
  node: OfflineNode,
  podCIDRs: readonly string[],
): ClientPlace | undefined {
  switch (position) {
    case "node":
      return { address: node.nodeIP, inInterface: "" };
    case "outside":
      return { address: OUTSIDE[node.family] as IpAddress, inInterface: "eth0" }; // canonical literals
    case "pod": {
      const [cidr] = podNetworks(node, podCIDRs);
      return cidr && { address: addressAt(cidr, 250), inInterface: podInterface(node) };
    }
  }
}

/** The networks of the node's pods, if known; if the Node does not say, that of the cluster. @param podCIDRs of the node. */
export function podNetworks({ detector, family }: OfflineNode, podCIDRs: readonly string[]): readonly Cidr[] {
  const own = podCIDRs.flatMap((text) => parseCidr(text) ?? []).filter((cidr) => familyOf(cidr) === family);
  return own.length === 0 && detector.kind === "cidr" ? [detector.cidr] : own;
}

/** If the client is the node itself, it sends to its own address from that same address (RFC 6724 §5, rule 1). */
export function sendingTo(
  destination: IpAddress,
  place: ClientPlace,
  isLocal: (address: IpAddress) => boolean,
): ClientPlace {
  return place.inInterface === "" && isLocal(destination) ? { ...place, address: destination } : place;
}

/** The interface by which packets of the node's pods come in; undefined: not known. */
export function podInterface({ detector }: OfflineNode): string | undefined {
  switch (detector.kind) {
    case "interface":
      return detector.name;
    case "interface-prefix":
      return `${detector.prefix}0`;
    default:
      return undefined;
  }
}
