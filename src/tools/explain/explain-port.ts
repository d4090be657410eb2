/** Combines everything about one service port on one node: the model's decisions, and what the mode has for it. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { ModeInspection } from "../../contract/inspection.ts";
import { isWeighted, sharesOf } from "../../model/cells.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { type EndpointUse, endpointReasons, topologyReason } from "../../model/endpoint-reasons.ts";
import { declaredFrontends, type FrontendAddress, frontendKey, frontendsOf } from "../../model/frontend.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { modeNamed } from "../../modes/registry.ts";
import { type IpAddress, isLoopback } from "../../net/ip.ts";
import { causeWords, decisionWords, type PortObjects } from "./decisions.ts";
import { type Asked, type ClientFacts, encountersAt, type Walk } from "./encounters.ts";
import type { ExplainedEndpoint, ExplainedFrontend, ExplainedUse, Policies, PortExplanation } from "./explanation.ts";
import { atLoopback } from "./loopback.ts";
import { statedEndpoints } from "./stated-endpoints.ts";
import { endpointWords } from "./words.ts";

/** A node in one mode, for one family. */
export interface ExplainedNode {
  readonly node: OfflineNode;
  readonly config: KubeProxyConfig;
  readonly inspection: ModeInspection;
  /** The same node with a detector; only if clusterCIDR is not known. */
  readonly detecting?: OfflineNode | undefined;
  readonly clients: ClientFacts;
  /** The key of the service port that declares a frontend first. */
  readonly ownerOf: (frontend: string) => string | undefined;
}

/** Sends packets through a plan that at least includes the port. */
export interface Walks {
  readonly walk: Walk;
  readonly detecting: Asked["detecting"];
}

/** Explains one service port. */
export function explainPort(
  here: ExplainedNode,
  port: ServicePort,
  objects: PortObjects,
  walks: Walks,
): PortExplanation {
  const { node, config, inspection } = here;
  const topology = { nodeName: node.name, zone: node.zone };
  const all = node.state.endpoints.get(port.name.key) ?? [];
  const routing = routeServicePort(port, all, topology);
  const statement = statedEndpoints(objects.slices, port.name, { family: node.family, nodeName: node.name });
  const reason = topologyReason(all, topology);
  const policies = policiesOf(here, port);
  const reasons = endpointReasons(all, routing.categories, reason.mode);
  const [clusterShares, localShares] = [routing.cluster, routing.local].map((used) => {
    const shares = sharesOf(modeNamed(config.mode).ignoresBalancing === true ? used.map(() => ({})) : used);
    return new Map(used.map((endpoint, index) => [endpoint, shares[index] ?? 0]));
  });
  const endpoints = reasons.map(({ endpoint, cluster, local }): ExplainedEndpoint => {
    const { slice = "", nodeName = "", pod = null, zone } = statement.places.get(endpoint.text) ?? {};
    const names = { nodeName: node.name, endpointNode: nodeName };
    return {
      address: endpoint.text,
      pod,
      node: nodeName,
      ...(zone !== undefined && { zone }),
      slice,
      state: endpoint.isReady ? "ready" : endpoint.isTerminating ? "terminating" : "not ready",
      isLocal: endpoint.isLocal,
      zoneHints: endpoint.zoneHints ?? [],
      nodeHints: endpoint.nodeHints ?? [],
      ...(endpoint.weight !== undefined && { weight: endpoint.weight }),
      cluster: useOf(cluster, endpoint, names, clusterShares),
      local: useOf(local, endpoint, names, localShares),
    };
  });
  const frontends = explainedFrontends(here, port, { routing, endpoints: all, ...walks });
  const { passedOver } = statement;
  const decided = {
    ...{ ...objects, node, config, port, routing, topology: reason, policies, endpoints, frontends, passedOver },
    words: inspection.words,
    choice: inspection.choice(config, isWeighted(routing.categories.reachable)),
    isUndecided: here.detecting !== undefined,
  };
  return {
    node: node.name,
    zone: node.zone ?? null,
    mode: config.mode,
    family: node.family,
    servicePort: port.name.text,
    protocol: port.protocol,
    type: objects.service?.type === "" ? "ClusterIP" : (objects.service?.type ?? "ClusterIP"),
    policies,
    ...(port.balancing !== undefined &&
      modeNamed(config.mode).ignoresBalancing !== true && {
        balancing: { hash: port.balancing, seed: config.balancing.seed },
      }),
    frontends,
    endpoints,
    passedOver,
    causes: causeWords(decided),
    decisions: decisionWords(decided),
    kernel: inspection.partsOf(node, config, port, all),
  };
}

function policiesOf({ node }: ExplainedNode, port: ServicePort): Policies {
  return {
    internal: port.internalPolicyLocal ? "Local" : "Cluster",
    external: port.externalPolicyLocal ? "Local" : "Cluster",
    sessionAffinity: port.sessionAffinity,
    affinitySeconds: port.stickyMaxAgeSeconds,
    sourceRanges: port.loadBalancerSourceRanges,
    healthCheckNodePort: port.healthCheckNodePort,
    localReady: node.state.localReadyCounts.get(port.name.service) ?? 0,
  };
}

function explainedFrontends(
  here: ExplainedNode,
  port: ServicePort,
  known: Pick<Asked, "routing" | "endpoints" | "walk" | "detecting">,
): ExplainedFrontend[] {
  const { routing } = known;
  const { node, clients: facts, inspection } = here;
  const owned = new Map(frontendsOf(port, routing).map((frontend) => [frontendKey(port.protocol, frontend), frontend]));
  return declaredFrontends(port).map((declared): ExplainedFrontend => {
    const { kind, address, port: number } = declared;
    const key = frontendKey(port.protocol, declared);
    const frontend = owned.get(key);
    const common = { kind, address: address ?? null, port: number, ...ofNodePort(here, port, declared, known) };
    if (frontend === undefined) {
      const isLocal = kind === "cluster-ip" ? port.internalPolicyLocal : port.externalPolicyLocal;
      const owner = here.ownerOf(key) ?? "another service port";
      return { ...common, policy: isLocal ? "Local" : "Cluster", fate: "lost", owner, clients: [] };
    }
    const { policy, fate } = frontend;
    const isTaken = (own: IpAddress) =>
      here.ownerOf(frontendKey(port.protocol, { address: own, port: number })) !== undefined;
    const clients = encountersAt({ ...known, frontend, port, node, clients: facts, words: inspection.words, isTaken });
    return { ...common, policy, fate, owner: null, clients };
  });
}

/** Where a node port answers. */
function ofNodePort(
  here: ExplainedNode,
  port: ServicePort,
  { kind }: FrontendAddress,
  { routing, walk }: Pick<Asked, "routing" | "walk">,
): Pick<ExplainedFrontend, "answersAt" | "atLoopback"> {
  if (kind !== "node-port") return { answersAt: null, atLoopback: null };
  const { nodePortIPs } = here.node;
  if (!routing.categories.hasAny) return { answersAt: placesOf(nodePortIPs), atLoopback: null };
  const { address, isLed, words } = atLoopback(here, port, walk);
  if (nodePortIPs.kind === "all") {
    return { answersAt: `${placesOf(nodePortIPs)}${isLed ? "" : " but loopback"}`, atLoopback: words };
  }
  const places = placesOf({ kind: "ips", ips: nodePortIPs.ips.filter((ip) => !isLoopback(ip)) });
  return { answersAt: isLed ? `${places}, and for this node itself ${address}` : places, atLoopback: words };
}

function placesOf(addresses: NodePortIPs): string {
  return addresses.kind === "all" ? "every address of the node" : addresses.ips.join(", ") || "no address of the node";
}

function useOf(
  use: EndpointUse | undefined,
  endpoint: Endpoint,
  names: Readonly<Record<"nodeName" | "endpointNode", string>>,
  shares: ReadonlyMap<Endpoint, number> | undefined,
): ExplainedUse | null {
  if (use === undefined) return null;
  const hints = (use.reason === "other-node" ? endpoint.nodeHints : endpoint.zoneHints) ?? [];
  const why = endpointWords(use.reason, { ...names, hints, leftOut: endpoint.leftOut });
  return { used: use.isUsed, why, share: shares?.get(endpoint) ?? 0 };
}
