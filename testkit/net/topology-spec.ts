/** The plan of a network as data, and the one that the demo and most kernel tests use. */
import { type Cidr, parseCidr } from "../../src/net/ip.ts";

/** An address of each family, with prefix length: `10.200.0.2/24`, `fd00:200::2/64`. */
export interface DualAddress {
  readonly ipv4: string;
  readonly ipv6: string;
}

/** A node: forwards, has a pod bridge `cni0` and an uplink `eth0` on the LAN. */
export interface NodeSpec {
  readonly name: string;
  readonly lan: DualAddress;
  /** Address of cni0; its network is the node's pod CIDR. */
  readonly bridge: DualAddress;
}

/** A machine on the LAN that is not a node. */
export interface HostSpec {
  readonly name: string;
  readonly lan: DualAddress;
  /** The node that is its default gateway. */
  readonly gateway: string;
}

/** A pod on a node's bridge; its addresses have no prefix length and lie in the node's pod CIDR. */
export interface PodSpec {
  readonly name: string;
  readonly node: string;
  readonly ipv4?: string | undefined;
  readonly ipv6?: string | undefined;
}

export interface TopologySpec {
  /** Address of the LAN's own router, which answers nothing: a black hole. */
  readonly lan: DualAddress;
  /** The first is the node under test. */
  readonly nodes: readonly NodeSpec[];
  readonly hosts: readonly HostSpec[];
  readonly pods: readonly PodSpec[];
}

/** The node under test, with the addresses of the conformance cases' node. */
export const nodeA: NodeSpec = {
  name: "node-a",
  lan: { ipv4: "10.200.0.2/24", ipv6: "fd00:200::2/64" },
  bridge: { ipv4: "10.180.0.1/24", ipv6: "fd00:10:180::1/80" },
};

/** A neighbour whose pods are remote for {@link nodeA}. */
export const nodeB: NodeSpec = {
  name: "node-b",
  lan: { ipv4: "10.200.0.3/24", ipv6: "fd00:200::3/64" },
  bridge: { ipv4: "10.180.1.1/24", ipv6: "fd00:10:180:0:1::1/80" },
};

/** An off-node client whose routes go through {@link nodeA}. */
export const client: HostSpec = {
  name: "client",
  lan: { ipv4: "10.200.0.100/24", ipv6: "fd00:200::100/64" },
  gateway: nodeA.name,
};

/** A pod of {@link nodeA} that serves nothing. */
export const clientPod = {
  name: "client-pod",
  node: nodeA.name,
  ipv4: "10.180.0.250",
  ipv6: "fd00:10:180::250",
} satisfies PodSpec;

/** Two nodes, one off-node client and one client pod. */
export const defaultTopology: TopologySpec = {
  lan: { ipv4: "10.200.0.1/24", ipv6: "fd00:200::1/64" },
  nodes: [nodeA, nodeB],
  hosts: [client],
  pods: [clientPod],
};

/** `clusterCIDR` of the configuration that fits {@link defaultTopology}. */
export const defaultClusterCidr = "10.180.0.0/16,fd00:10:180::/64";

/** The address without its prefix length. */
export function bareAddress(address: string): string {
  const slash = address.indexOf("/");
  return slash < 0 ? address : address.slice(0, slash);
}

/** The network of an address with prefix length, host bits cleared. Throws on invalid text. */
export function networkOf(address: string): Cidr {
  const cidr = parseCidr(address);
  if (cidr === undefined) throw new TypeError(`not an address with prefix length: ${address}`);
  return cidr;
}
