/**
 * `kube-proxy-ts/explain`: the answers of `kube-proxy explain`, `trace` and `diff` as data: how a Service treats its clients and why,
 * what happens to a packet, and what a change of a cluster changes. Needs neither root nor a kernel.
 *
 * @experimental Names and shapes may change with any version before 1.0.
 *
 * @example
 * ```ts
 * import { clusterFrom, explain, trace } from "kube-proxy-ts/explain";
 *
 * const cluster = clusterFrom([
 *   {
 *     apiVersion: "v1",
 *     kind: "Service",
 *     metadata: { namespace: "shop", name: "web" },
 *     spec: { clusterIP: "10.96.0.10", clusterIPs: ["10.96.0.10"], ipFamilies: ["IPv4"], ports: [{ port: 80 }] },
 *   },
 *   { apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } },
 * ]);
 * const { servicePorts } = await explain({ cluster, mode: "nftables" }, "shop/web");
 * console.log(servicePorts[0]?.frontends[0]?.fate);
 * const { outcomes } = await trace({ cluster, mode: "nftables" }, { from: "outside", to: "10.96.0.10", port: 80 });
 * console.log(outcomes.map(({ odds, fate }) => `${odds}: ${fate}`));
 * ```
 */

import { withAssumedNetworks } from "../contract/inspect/assumed-networks.ts";
import { CLIENT_KINDS, type ClientPlace, clientPlace, podInterface } from "../contract/inspect/client-place.ts";
import { knownPods } from "../contract/inspect/known-pods.ts";
import { type OfflineNode, offlineNode } from "../contract/inspect/offline-node.ts";
import { familyOf, IP_FAMILIES, type IpAddress, parseIpAddress, toPort } from "../net/ip.ts";
import { PROTOCOL_NAMES, type ProtocolName } from "../net/protocol.ts";
import { diffObjects, type ObjectsDiff } from "../tools/explain/diff-objects.ts";
import { explainedCluster, explainPorts } from "../tools/explain/explained-cluster.ts";
import type { PortExplanation } from "../tools/explain/explanation.ts";
import { find } from "../tools/explain/find.ts";
import { isPodOf, walkOf } from "../tools/explain/planned-rules.ts";
import { parseTarget, withKnownNames } from "../tools/explain/target.ts";
import type { Fate } from "../trace/netfilter/tree.ts";
import { fateText } from "../trace/report/fate-text.ts";
import { type Cluster, invalidInput, requireCluster, requireKnown, requireListOf, requireObject } from "./cluster.ts";
import type { PlanRequest } from "./plan.ts";
import { PlanError } from "./plan-error.ts";
import { checkedSettings } from "./plan-settings.ts";

export type { ClientChange } from "../tools/explain/compare.ts";
export type { NodeDiff, ObjectsDiff } from "../tools/explain/diff-objects.ts";
export type { ExplainedEndpoint, ExplainedFrontend, PortExplanation } from "../tools/explain/explanation.ts";
export { type Cluster, ClusterReadError, clusterFrom, readCluster } from "./cluster.ts";
export { PlanError, type PlanErrorCode } from "./plan-error.ts";

/** The cluster, the node and the mode: as for a plan. */
export type ExplainRequest = Omit<PlanRequest, "without">;

/** What `explain` found. */
export interface Explanation {
  /** How the target belongs to the service ports; empty for a Service's own name. */
  readonly because: readonly string[];
  readonly servicePorts: readonly PortExplanation[];
  /** Oddities of configuration and cluster, for people. */
  readonly warnings: readonly string[];
}

/** A client's first packet. */
export interface PacketRequest {
  /** A kind of client, or an address. */
  readonly from: "pod" | "node" | "outside" | (string & {});
  /** An address. */
  readonly to: string;
  readonly port: number;
  /** @default "tcp" */
  readonly protocol?: ProtocolName;
}

/** One possible outcome for a packet. */
export interface TracedOutcome {
  /** The probability, from 0 to 1, given the random choices on the way. */
  readonly odds: number;
  readonly fate: Fate["kind"];
  /** In the words of `kube-proxy trace`. */
  readonly text: string;
  /** Null: an address of the node that the request does not name. */
  readonly source: string | null;
  readonly destination: string;
  readonly destinationPort: number | undefined;
  readonly isMasqueraded: boolean;
}

/** @param cluster says where pods are if no configuration does. */
async function settingsOf(request: Omit<ExplainRequest, "cluster">, cluster: Cluster) {
  const { families = IP_FAMILIES } = request;
  requireListOf("families", families, IP_FAMILIES);
  const { config, warnings } = await checkedSettings(request);
  const isBare = request.config === undefined;
  if (!isBare) return { families, config, isBare, warnings: new Set(warnings) };
  const assumed = withAssumedNetworks(cluster, config, families);
  const said = ["no configuration is given", assumed.words].filter((part) => part !== "").join("; ");
  return { families, config: assumed.config, isBare, warnings: new Set([...warnings, said]) };
}

/**
 * Explains a target as `kube-proxy explain` does: `ns/name`, an address with or without a port, a node port, a chain's or a set's name.
 *
 * @throws PlanError `target-unknown` if there is no such target, and the errors of `plan`
 * @experimental
 */
export async function explain(request: ExplainRequest, what: string): Promise<Explanation> {
  requireObject("request", request, "an object that has a cluster");
  requireCluster(request.cluster);
  const { config, families, isBare, warnings } = await settingsOf(request, request.cluster);
  const known = { ...request.cluster, pods: knownPods(request.cluster).keys() };
  const target = typeof what === "string" ? parseTarget(withKnownNames(what, known), undefined) : undefined;
  if (target === undefined) throw invalidInput("what", what, "a Service, an address, a port or a name");
  const warn = (message: string) => void warnings.add(message);
  const cluster = await explainedCluster(request.cluster, config, families, warn, { isBare });
  const found = find(cluster, target);
  if (found.kind === "nothing") throw new PlanError("target-unknown", found.why);
  if (found.kind === "shared")
    return { because: [`${found.name}: ${found.purpose}`], servicePorts: [], warnings: [...warnings] };
  const servicePorts = await explainPorts(cluster, found.keys);
  return { because: found.because, servicePorts, warnings: [...warnings] };
}

/**
 * Traces a packet through the rules that the mode plans, as `kube-proxy trace` does.
 *
 * @throws PlanError `input-invalid`, and the errors of `plan`
 * @experimental
 */
export async function trace(
  request: Omit<ExplainRequest, "families">,
  packet: PacketRequest,
): Promise<{ readonly node: string; readonly outcomes: readonly TracedOutcome[] }> {
  requireObject("request", request, "an object that has a cluster");
  requireObject("packet", packet, "an object with from, to and port");
  const { from, to, port, protocol = "tcp" } = packet;
  requireCluster(request.cluster);
  requireKnown("protocol", protocol, PROTOCOL_NAMES);
  const destination = addressIn(to);
  if (destination === undefined) throw invalidInput("to", to, "an IP address");
  if (toPort(port) === undefined) throw invalidInput("port", port, "a number from 1 to 65535");
  const { config } = await settingsOf(request, request.cluster);
  const node = offlineNode(request.cluster, config, familyOf(destination), () => {});
  const { address: source, inInterface, isHere } = clientAt(from, node, request.cluster);
  const walk = await walkOf(node, config);
  const origin = isHere ? "socket" : "elsewhere";
  const flow = { source, sourcePort: undefined, destination, destinationPort: port };
  const outcomes = [...walk({ ...flow, family: node.family, protocol, inInterface, origin })];
  return {
    node: node.name,
    outcomes: outcomes.map(({ odds, fate, packet: ended }) => ({
      odds,
      fate: fate.kind,
      text: fateText({ fate, packet: ended }),
      source: ended.isSourceKnown ? ended.source : null,
      destination: ended.destination,
      destinationPort: ended.destinationPort,
      isMasqueraded: ended.isMasqueraded,
    })),
  };
}

/** Callers in plain JavaScript may pass anything. */
const addressIn = (text: unknown): IpAddress | undefined =>
  typeof text === "string" ? parseIpAddress(text) : undefined;

/** Where a client is. @throws PlanError `input-invalid` */
function clientAt(from: string, node: OfflineNode, { nodes }: Cluster): ClientPlace & { readonly isHere: boolean } {
  const podCIDRs = nodes.find(({ name }) => name === node.name)?.podCIDRs ?? [];
  const kind = CLIENT_KINDS.find((one) => one === from);
  if (kind !== undefined) {
    const place = clientPlace(kind, node, podCIDRs);
    if (place !== undefined) return { ...place, isHere: kind !== "outside" };
    throw new PlanError("input-invalid", "from: the Node has no podCIDR of this family: give the address of a pod");
  }
  const address = addressIn(from);
  if (address === undefined) throw invalidInput("from", from, '"pod", "node", "outside" or an IP address');
  if (familyOf(address) !== node.family) throw invalidInput("from", from, `an ${node.family} address, as "to" is one`);
  if (node.hostAddresses.includes(address)) return { address, inInterface: "", isHere: true };
  const isHere = isPodOf(node, podCIDRs, address);
  return { address, inInterface: isHere ? podInterface(node) : undefined, isHere };
}

/**
 * What a change of a cluster changes for clients and in the rules, in the words of `kube-proxy diff`.
 *
 * @param request `node`: only this node. @default every Node that is in both clusters
 * @throws PlanError the errors of `plan`
 * @experimental
 */
export async function diff(
  before: Cluster,
  after: Cluster,
  request: Omit<ExplainRequest, "cluster"> = {},
): Promise<ObjectsDiff & { readonly warnings: readonly string[] }> {
  requireCluster(before);
  requireCluster(after);
  requireObject("request", request, "an object");
  const { config, families, isBare, warnings } = await settingsOf(request, after);
  const nodes = request.node === undefined || request.node === "" ? undefined : [request.node];
  const warn = (message: string): void => void warnings.add(message);
  const found = await diffObjects(before, after, { config, families, isBare, nodes, warn });
  return { ...found, warnings: [...warnings] };
}
