/**
 * Which Node of the manifests the demo's node plays, and where in the demo's network each endpoint is. A dump of a real
 * cluster has its own names and addresses of nodes and pods, and the proxy reads it unchanged.
 */
import { cidrContains, familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../src/net/ip.ts";
import { bareAddress, defaultTopology, type NodeSpec, networkOf, nodeA } from "../testkit/net/topology-spec.ts";
import type { ClusterView } from "./cluster-view.ts";

export interface PlayedNode {
  readonly name: string;
  /** The addresses at which clients try its node ports. */
  readonly addresses: Readonly<Record<IpFamily, IpAddress>>;
  /** Addresses of the Node object that the demo's node gets in addition to its own. */
  readonly extra: readonly IpAddress[];
}

/** The node of the examples. */
export const demoNode: PlayedNode = {
  name: nodeA.name,
  addresses: { IPv4: addressOf(nodeA.lan.ipv4), IPv6: addressOf(nodeA.lan.ipv6) },
  extra: [],
};

/** The address without its prefix length. @throws TypeError if the text is no address. */
export function addressOf(text: string): IpAddress {
  const address = parseIpAddress(bareAddress(text));
  if (address === undefined) throw new TypeError(`not an address: ${text}`);
  return address;
}

/**
 * The node to play: the requested one; else the demo's own, if the manifests have it or have no Nodes; else the first by
 * name that is not a control-plane node.
 *
 * @throws Error if the requested one is not in the manifests.
 */
export function playedNode({ nodes }: Pick<ClusterView, "nodes">, wanted: string | undefined): PlayedNode {
  const names = nodes.map(({ name }) => name);
  if (wanted !== undefined && !names.includes(wanted)) {
    throw new Error(
      `--hostname-override ${wanted}: the manifests have no such Node, but ${names.join(", ") || "none"}`,
    );
  }
  if (wanted === undefined && (names.includes(demoNode.name) || names.length === 0)) return demoNode;
  const byName = nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const node = byName.find(({ name, isControlPlane }) => (wanted === undefined ? !isControlPlane : name === wanted));
  const { name, addresses } = node ?? byName[0] ?? { name: demoNode.name, addresses: [] };
  const first = (family: IpFamily) => addresses.find((address) => familyOf(address) === family);
  const own = Object.values(demoNode.addresses);
  return {
    name,
    addresses: { IPv4: first("IPv4") ?? demoNode.addresses.IPv4, IPv6: first("IPv6") ?? demoNode.addresses.IPv6 },
    extra: addresses.filter((address) => !own.includes(address)),
  };
}

/** In a pod of the node, elsewhere (another node, or outside), or on the node itself. */
export type Place = "here" | "elsewhere" | "node";

export function placeOf(address: IpAddress, nodeName: string, node: PlayedNode): Place {
  const home = homeOf(address);
  if (home !== undefined) return home === nodeA ? "here" : "elsewhere";
  if (node.extra.includes(address) || Object.values(demoNode.addresses).includes(address)) return "node";
  return nodeName === node.name ? "here" : "elsewhere";
}

/** The node whose pod network in the demo contains the address. */
export function homeOf(address: IpAddress): NodeSpec | undefined {
  return defaultTopology.nodes.find(
    ({ bridge }) => cidrContains(networkOf(bridge.ipv4), address) || cidrContains(networkOf(bridge.ipv6), address),
  );
}
