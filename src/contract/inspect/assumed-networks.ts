/** The pods' networks where no configuration names them: those of the Nodes, or what holds the endpoints. */

import { nodeIPsOf } from "../../model/node-identity.ts";
import type { ClusterRecords } from "../../model/objects.ts";
import {
  type Cidr,
  cidrContains,
  familyOf,
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  parseCidr,
  parseIpAddress,
} from "../../net/ip.ts";
import type { KubeProxyConfig } from "../config/config.ts";

type Known = Pick<ClusterRecords, "nodes" | "endpointSlices" | "services">;

/**
 * A configuration that detects the traffic of pods as far as the objects say where pods are.
 *
 * @param config the defaults. @returns also what is assumed, or not known, for the first line of an answer.
 */
export function withAssumedNetworks(objects: Known, config: KubeProxyConfig, families = IP_FAMILIES) {
  const ofNodes = objects.nodes.flatMap(({ podCIDRs }) => podCIDRs.flatMap((text) => parseCidr(text) ?? []));
  const ofServices = objects.services.flatMap(({ clusterIPs }) =>
    clusterIPs.flatMap((text) => parseIpAddress(text) ?? []),
  );
  const clusterCIDRs =
    ofNodes.length > 0 ? [] : IP_FAMILIES.flatMap((family) => networkOfEndpoints(objects, ofServices, family) ?? []);
  const known = new Set([...ofNodes, ...clusterCIDRs].map(familyOf));
  const served = new Set(ofServices.map(familyOf));
  const missing = families.filter((family) => served.has(family) && !known.has(family));
  const shown = clusterCIDRs.filter((cidr) => families.includes(familyOf(cidr)));
  const words = [
    ofNodes.length > 0
      ? "pods: the Nodes' podCIDRs"
      : shown.length > 0
        ? `pods: in ${shown.join(" and ")}, by their endpoints`
        : [],
    missing.length === 0
      ? []
      : `clusterCIDR is not known${shown.length + ofNodes.length > 0 ? ` for ${missing.join(" and ")}` : ""}`,
  ].flat();
  const change =
    ofNodes.length > 0
      ? ({ detectLocalMode: "NodeCIDR" } as const)
      : { detectLocal: { ...config.detectLocal, clusterCIDRs } };
  return { config: { ...config, ...change }, words: words.join("; ") };
}

/** Networks of pods are at least as large as a node's usual share, and smaller than what only chance puts together. */
const SIZES: Readonly<Record<IpFamily, { readonly longest: number; readonly shortest: number }>> = {
  IPv4: { longest: 24, shortest: 9 },
  IPv6: { longest: 64, shortest: 32 },
};

/** The smallest network of all pods that are endpoints; undefined if it also holds addresses of nodes or Services. */
function networkOfEndpoints(
  { nodes, endpointSlices }: Known,
  ofServices: readonly IpAddress[],
  family: IpFamily,
): Cidr | undefined {
  const ofNodes = new Set(nodes.flatMap(nodeIPsOf));
  const ofOthers = [...ofNodes, ...ofServices];
  let network: Cidr | undefined;
  let { longest: bits } = SIZES[family];
  for (const { endpoints } of endpointSlices) {
    for (const { address: text, nodeName } of endpoints) {
      const address = parseIpAddress(text);
      if (address === undefined || nodeName === "" || familyOf(address) !== family || ofNodes.has(address)) continue;
      network ??= parseCidr(`${address}/${bits}`);
      while (network !== undefined && !cidrContains(network, address)) {
        bits -= 1;
        if (bits < SIZES[family].shortest) return undefined;
        network = parseCidr(`${address}/${bits}`);
      }
    }
  }
  const holdsOthers = ofOthers.some((address) => network !== undefined && cidrContains(network, address));
  return holdsOthers ? undefined : network;
}
