/**
 * A node without its kernel, as manifests, a configuration and a name describe it. Everything derives from these, so that CI can
 * compare results.
 */
import { hostname } from "node:os";
import { detectorFor } from "../../model/local-traffic-detector.ts";
import {
  addressesOf,
  effectiveNodeAddresses,
  nodeIPsOf,
  nodeNameFrom,
  primaryCidrs,
} from "../../model/node-identity.ts";
import type { PlannedNode } from "../../model/node-plan-config.ts";
import { type NodePortIPs, nodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import type { ClusterRecords, NodeRecord } from "../../model/objects.ts";
import { logConflicts, summariesOf } from "../../model/owned-services.ts";
import type { ServedState } from "../../model/proxy-state.ts";
import type { WithStanding } from "../../model/standing-ports.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import { gatesOf } from "../config/feature-gates.ts";
import { withoutNodePortWords } from "../config/node-port-words.ts";
import { offlineState, standingOn, withStanding } from "./offline-state.ts";
import { warningLogger } from "./warning-logger.ts";

/** A service port outside the node's partial state, with as many rules as one inside it. */
export interface OtherPort {
  /** {@link ServicePortName.key}, as is `like`. */
  readonly key: string;
  /** {@link ServicePortName.text} */
  readonly text: string;
  /** The key of the one in the state. */
  readonly like: string;
}

/** One family of a node. */
export interface OfflineNode extends PlannedNode {
  readonly zone: string | undefined;
  readonly nodePortIPs: NodePortIPs;
  readonly hostAddresses: readonly IpAddress[];
  /** The names of the other Nodes by their addresses. @default not known */
  readonly otherNodes?: ReadonlyMap<IpAddress, string>;
  /** Of both families. */
  readonly serviceCIDRs: readonly string[];
  readonly state: ServedState;
  /** The other service ports, if the state is only a part. @default none */
  readonly others?: readonly OtherPort[];
}

/**
 * @param warn gets what the manifests lack, and the model's warnings.
 * @param found the node's addresses, if known: a kernel has more of them than the Node object (link-local ones, bridges), and the
 *   true ones behind a NAT. @default those in the Node object, and loopback
 */
export function offlineNode(
  cluster: Omit<ClusterRecords, "problems"> & WithStanding,
  config: KubeProxyConfig,
  family: IpFamily,
  warn: (message: string) => void,
  found?: readonly IpAddress[],
): OfflineNode {
  const { name, node } = nodeOf(cluster.nodes, config.hostnameOverride);
  if (node === undefined)
    warn(
      `no Node "${name}" among the objects: no endpoint counts as local, and the node's addresses are unknown; choose a Node with --node`,
    );
  const log = warningLogger(warn);
  const { state, conflicts } = offlineState(cluster, {
    family,
    nodeName: name,
    allowExternalIPs: gatesOf(config).isEnabled("AllowServiceExternalIPs"),
    log,
  });
  logConflicts(summariesOf(conflicts), log);
  const nodeIPs = node === undefined ? [] : nodeIPsOf(node);
  const addresses = effectiveNodeAddresses(nodeIPs, config.bindAddress);
  const { detector } = detectorFor(family, {
    mode: config.detectLocalMode,
    podCIDRs: node?.podCIDRs ?? [],
    ...config.detectLocal,
  });
  const own = found ?? hostAddresses(node, family);
  const nodePorts = nodePortAddresses(family, withoutNodePortWords(config.nodePortAddresses, primaryCidrs(addresses)));
  return {
    family,
    name,
    zone: node?.zone,
    nodeIP: addresses.ips[family],
    detector,
    nodePortAddresses: nodePorts,
    nodePortIPs: nodePortIPs(nodePorts, own),
    hostAddresses: own,
    otherNodes: new Map(
      cluster.nodes
        .filter((other) => other.name !== name)
        .flatMap((other) => addressesOf(other).map((address) => [address, other.name] as const))
        .filter(([address]) => !own.includes(address)),
    ),
    serviceCIDRs: cluster.serviceCIDRs.flatMap(({ cidrs }) => cidrs),
    state: withStanding(state, standingOn(cluster, name, family)),
  };
}

/** The name of the planned node: the configuration's, else the only Node's, else this host's. */
export function nodeNameIn(
  nodes: readonly NodeRecord[],
  { hostnameOverride }: Pick<KubeProxyConfig, "hostnameOverride">,
): string {
  return nodeOf(nodes, hostnameOverride).name;
}

function nodeOf(nodes: readonly NodeRecord[], override: string): { name: string; node: NodeRecord | undefined } {
  const [only] = nodes;
  const name =
    override === "" && nodes.length === 1 && only !== undefined ? only.name : nodeNameFrom(override, hostname());
  return { name, node: nodes.find((node) => node.name === name) };
}

/** Without a kernel, the host's addresses are those in the Node object, and loopback. */
function hostAddresses(node: NodeRecord | undefined, family: IpFamily): IpAddress[] {
  const texts = ["127.0.0.1", "::1", ...(node?.addresses.map(({ address }) => address) ?? [])];
  return texts.flatMap((text) => parseIpAddress(text) ?? []).filter((ip) => familyOf(ip) === family);
}
