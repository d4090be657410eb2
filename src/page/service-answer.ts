/** One service port of a running daemon, explained from what the daemon serves at this moment. */
import type { LiveDaemon } from "../daemon/inspect-report.ts";
import { modeNamed } from "../dataplane/registry.ts";
import { type ExplainedNode, explainPort } from "../explain/explain-port.ts";
import { clientFactsOf, ownersIn } from "../explain/explained-cluster.ts";
import type { PortExplanation } from "../explain/explanation.ts";
import { pictureOf } from "../explain/picture.ts";
import { walkOf } from "../explain/planned-rules.ts";
import type { withTraffic } from "../explain/traffic.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { ServiceAnswer } from "./answers.ts";

/** Adds what the kernel has counted to explanations; `withTraffic`, or what stands for it in tests. */
export type AddTraffic = typeof withTraffic;

/**
 * @param viewOf each family as a node.
 * @param addTraffic asks the kernel for counters and connections; undefined: it is not asked, for that may take seconds.
 * @returns undefined when no family has a service port with this key.
 */
export async function serviceAnswer(
  daemon: LiveDaemon,
  key: string,
  viewOf: (family: LiveDaemon["families"][number]) => Promise<OfflineNode>,
  addTraffic?: AddTraffic,
): Promise<ServiceAnswer | undefined> {
  const { loadInspection } = modeNamed(daemon.config.mode);
  const inspection = await loadInspection();
  const explanations: PortExplanation[] = [];
  for (const family of daemon.families) {
    if (!family.state.services.has(key)) continue;
    const node = await viewOf(family);
    // It may have gone while the addresses were read.
    const port = family.state.services.get(key);
    if (port === undefined) continue;
    const here: ExplainedNode = {
      node,
      config: daemon.config,
      inspection,
      clients: clientFactsOf(node, daemon.podCIDRs, []),
      ownerOf: ownersIn(node),
    };
    const objects = { service: undefined, slices: family.state.slicesOf(port.name.service) };
    const walk = await walkOf(neighboursOf(port, node), daemon.config);
    explanations.push({ ...explainPort(here, port, objects, walk), type: typeOf(port) });
  }
  if (explanations.length === 0) return undefined;
  const counted = addTraffic === undefined ? explanations : await addTraffic(inspection, explanations, daemon.config);
  const families = counted
    .map((one) => (addTraffic === undefined ? one : withCarried(one, daemon, key)))
    .map((explanation) => ({ explanation, picture: pictureOf(explanation, explanation.family) }));
  return { key, families };
}

/**
 * The node with the service ports alone that share an address or a node port with this one, or have its port as a node port, by whose
 * number ipvs mode masquerades: what its clients can meet.
 */
function neighboursOf(port: ServicePort, node: OfflineNode): OfflineNode {
  const { state } = node;
  const places = new Set([...placesOf(port), port.port]);
  const services = new Map([...state.services].filter(([, one]) => placesOf(one).some((place) => places.has(place))));
  const endpoints = new Map([...services.keys()].map((key) => [key, state.endpoints.get(key) ?? []]));
  const { endpointCount, localReadyCounts } = state;
  return { ...node, state: { services, endpoints, endpointCount, localReadyCounts } };
}

const placesOf = ({ clusterIP, externalIPs, loadBalancerVIPs, nodePort }: ServicePort): (string | number)[] =>
  [clusterIP, ...externalIPs, ...loadBalancerVIPs, nodePort].filter((place) => place !== 0);

/** What the daemon carries itself, it knows better than the kernel. */
function withCarried(explanation: PortExplanation, { families }: LiveDaemon, key: string): PortExplanation {
  const open = families.find(({ family }) => family === explanation.family)?.openConnections?.(key);
  if (open === undefined) return explanation;
  const endpoints = explanation.endpoints.map((one) => ({ ...one, open: open.get(one.address) ?? 0 }));
  return { ...explanation, endpoints };
}

/** What the Service must be at least; the daemon does not keep what it says it is. */
function typeOf({ loadBalancerVIPs, nodePort }: ServicePort): string {
  return loadBalancerVIPs.length > 0 ? "LoadBalancer" : nodePort !== 0 ? "NodePort" : "ClusterIP";
}
