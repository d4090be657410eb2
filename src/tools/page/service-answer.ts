/** Explains one service port of a running daemon, from what the daemon serves at this moment. */
import type { LiveDaemon, LiveFamily } from "../../agent/daemon/inspect-report.ts";
import { podNetworks } from "../../contract/inspect/client-place.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { declaredFrontends } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { modeNamed } from "../../modes/registry.ts";
import { explainPort, type Walks } from "../explain/explain-port.ts";
import { ownersIn } from "../explain/explained-cluster.ts";
import type { PortExplanation } from "../explain/explanation.ts";
import { walkOf } from "../explain/planned-rules.ts";
import type { withTraffic } from "../explain/traffic.ts";
import type { ServiceAnswer } from "./answers.ts";
import { typeOf } from "./service-table.ts";
import { talksOf } from "./talks.ts";

/** Adds the kernel's counts to explanations: `withTraffic`, or a stand-in in tests. */
export type AddTraffic = typeof withTraffic;

/**
 * @param viewOf a family as a node.
 * @param addTraffic reads the kernel's counters and connections; undefined: does not, as it may take seconds.
 * @returns undefined if no family has a service port with this key.
 */
export async function serviceAnswer(
  daemon: LiveDaemon,
  key: string,
  viewOf: (family: LiveFamily) => Promise<OfflineNode>,
  addTraffic?: AddTraffic,
): Promise<ServiceAnswer | undefined> {
  const explanations: PortExplanation[] = [];
  for (const family of daemon.families) {
    if (!family.state.services.has(key)) continue;
    const node = await viewOf(family);
    // The service port may have gone while the addresses were read.
    const port = family.state.services.get(key);
    if (port === undefined) continue;
    const walk = await walkOf(neighboursOf(port, node), daemon.config);
    explanations.push(await explainLive(daemon, family, node, port, walk));
  }
  if (explanations.length === 0) return undefined;
  const { config } = daemon;
  const inspection = await modeNamed(config.mode).loadInspection();
  if (addTraffic === undefined) return { key, families: explanations.map((explanation) => ({ explanation })) };
  const talks = await talksOf(daemon, key);
  const counted = await addTraffic(inspection, explanations, config, talks.listen);
  const families = counted.map((one) => {
    const own = talks.rows(one.family);
    return { explanation: withCarried(one, daemon, key), ...(own !== undefined && { talks: own }) };
  });
  return { key, families };
}

/** @param walk sends packets through the plan. */
export async function explainLive(
  { config, podCIDRs }: LiveDaemon,
  { state }: LiveFamily,
  node: OfflineNode,
  port: ServicePort,
  walk: Walks["walk"],
): Promise<PortExplanation> {
  const inspection = await modeNamed(config.mode).loadInspection();
  const clients = { podNetworks: podNetworks(node, podCIDRs), otherNodes: [] };
  const here = { node, config, inspection, clients, ownerOf: ownersIn(node) };
  const objects = { service: undefined, slices: state.slicesOf(port.name.service) };
  return { ...explainPort(here, port, objects, { walk, detecting: undefined }), type: typeOf(port) };
}

/**
 * The node with only the service ports that this one's clients can meet: those that share an address or node port with it, or have
 * its port as a node port, as ipvs mode masquerades by that number.
 */
function neighboursOf(port: ServicePort, node: OfflineNode): OfflineNode {
  const { state } = node;
  const places = new Set<string | number>([...placesOf(port), port.port]);
  const services = new Map([...state.services].filter(([, one]) => placesOf(one).some((place) => places.has(place))));
  const endpoints = new Map([...services.keys()].map((key) => [key, state.endpoints.get(key) ?? []]));
  const { endpointCount, localReadyCounts } = state;
  return { ...node, state: { services, endpoints, endpointCount, localReadyCounts } };
}

const placesOf = (port: ServicePort) => declaredFrontends(port).map(({ address, port: number }) => address ?? number);

/** The daemon knows better than the kernel which connections it relays itself. */
function withCarried(explanation: PortExplanation, { families }: LiveDaemon, key: string): PortExplanation {
  const open = families.find(({ family }) => family === explanation.family)?.backend?.openConnections?.(key);
  if (open === undefined) return explanation;
  const endpoints = explanation.endpoints.map((one) => ({ ...one, open: open.get(one.address) ?? 0 }));
  return { ...explanation, endpoints };
}
