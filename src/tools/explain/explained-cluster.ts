/** A cluster as one node must serve it in one mode, ready for explanations. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { podNetworks } from "../../contract/inspect/client-place.ts";
import { type OfflineNode, offlineNode } from "../../contract/inspect/offline-node.ts";
import { frontendKey, ownedFrontends } from "../../model/frontend.ts";
import { nodeIPsOf } from "../../model/node-identity.ts";
import { objectKeyText } from "../../model/objects.ts";
import { modeNamed } from "../../modes/registry.ts";
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";
import type { ClientFacts } from "./encounters.ts";
import { type ExplainedNode, explainPort, type Walks } from "./explain-port.ts";
import type { PortExplanation } from "./explanation.ts";
import { type Objects, slicesByService } from "./part-of-cluster.ts";
import { walkOf } from "./planned-rules.ts";

/** One node, with the requested families. */
export interface ExplainedCluster {
  readonly objects: Objects;
  readonly config: KubeProxyConfig;
  readonly families: readonly ExplainedNode[];
}

/**
 * @param warn gets what the objects lack, and the model's warnings.
 * @param known the node's addresses, if known. @default those in its Node object; and whether no configuration is known
 */
export async function explainedCluster(
  objects: Objects,
  config: KubeProxyConfig,
  families: readonly IpFamily[],
  warn: (message: string) => void,
  known: { readonly addresses?: readonly IpAddress[] | undefined; readonly isBare?: boolean } = {},
): Promise<ExplainedCluster> {
  const { loadInspection } = modeNamed(config.mode);
  const inspection = await loadInspection();
  return {
    objects,
    config,
    families: families.map((family) => {
      const own = known.addresses?.filter((address) => familyOf(address) === family);
      const node = offlineNode(objects, config, family, warn, own);
      const isUndecided = known.isBare === true && node.detector.kind === "none";
      return {
        node,
        ...(isUndecided && { detecting: { ...node, detector: SOME_DETECTOR } }),
        config,
        inspection,
        clients: clientFacts(objects, node),
        ownerOf: ownersIn(node),
      };
    }),
  };
}

/** Tells pods from other clients, wherever pods are. */
const SOME_DETECTOR = { kind: "interface-prefix", prefix: "veth" } as const;

function clientFacts({ nodes }: Objects, node: OfflineNode): ClientFacts {
  const { family, name } = node;
  const own = nodes.find((one) => one.name === name);
  const others = nodes.filter((one) => one.name !== name).flatMap((one) => nodeIPsOf(one));
  const otherNodes = others.filter((address) => familyOf(address) === family);
  return { podNetworks: podNetworks(node, own?.podCIDRs ?? []), otherNodes };
}

/** Finds the service port that has a frontend (`frontendKey`); the first call lists all of them. */
export function ownersIn({ state }: OfflineNode): (frontend: string) => string | undefined {
  let owners: Map<string, string> | undefined;
  return (frontend) => {
    owners ??= new Map(
      [...state.services.values()].flatMap((port) =>
        ownedFrontends(port).map((own) => [frontendKey(port.protocol, own), port.name.text] as const),
      ),
    );
    return owners.get(frontend);
  };
}

/** Explains the service ports with these keys, family by family; skips keys that a family does not have. */
export async function explainPorts(
  cluster: ExplainedCluster,
  keys: Iterable<string> | AsyncIterable<string>,
): Promise<PortExplanation[]> {
  const explanations: PortExplanation[] = [];
  const walks = await Promise.all(cluster.families.map(walksOf));
  const slices = slicesByService(cluster.objects.endpointSlices);
  const services = new Map(cluster.objects.services.map((service) => [objectKeyText(service), service]));
  const notes = new Map(cluster.objects.serviceNotes?.map((one) => [objectKeyText(one), one]));
  for await (const key of keys) {
    for (const [index, family] of cluster.families.entries()) {
      const port = family.node.state.services.get(key);
      const own = walks[index];
      if (port === undefined || own === undefined) continue;
      const { service } = port.name;
      const objects = { service: services.get(service), notes: notes.get(service), slices: slices.get(service) ?? [] };
      explanations.push(explainPort(family, port, objects, own));
    }
  }
  return explanations;
}

async function walksOf({ node, config, detecting }: ExplainedNode): Promise<Walks> {
  return {
    walk: await walkOf(node, config),
    detecting: detecting && { node: detecting, walk: await walkOf(detecting, config) },
  };
}

/** The keys of all service ports of the cluster that some family has, sorted. */
export function allPortKeys({ families }: ExplainedCluster): readonly string[] {
  return [...new Set(families.flatMap(({ node }) => [...node.state.services.keys()]))].sort();
}

/** The Services that this node serves, as `namespace/name`. */
export function servedServices({ families }: ExplainedCluster): ReadonlySet<string> {
  return new Set(families.flatMap(({ node }) => Array.from(node.state.services.values(), ({ name }) => name.service)));
}
