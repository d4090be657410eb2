/** Asks the same question on every node of a cluster: which nodes give the same answer, and how the others differ. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { IpFamily } from "../../net/ip.ts";
import { clientChanges, identityOf } from "./compare.ts";
import { explainedCluster, explainPorts } from "./explained-cluster.ts";
import type { PortExplanation } from "./explanation.ts";
import type { Objects } from "./part-of-cluster.ts";
import { safe } from "./safe-text.ts";
import { explanationText, sentenceText, type TextOptions } from "./text.ts";

/** Up to this many nodes, groups of nodes or endpoints are named one by one; there may be thousands. */
export const SHOWN = 4;

/** One service port of one family on all nodes, in groups of nodes with the same answer. */
interface NodeGroups {
  /** Largest first. */
  readonly groups: readonly { readonly nodes: readonly string[]; readonly explained: PortExplanation }[];
}

export interface AllNodesRequest {
  readonly config: KubeProxyConfig;
  readonly families: readonly IpFamily[];
  readonly warn: (message: string) => void;
  /** Whether no configuration is known. @default false */
  readonly isBare?: boolean;
  /** Called before each node. */
  readonly onNode?: (done: number) => Promise<void>;
}

/** @param keys of service ports. */
export async function explainOnAllNodes(
  objects: Objects,
  keys: readonly string[],
  { config, families, warn, isBare = false, onNode }: AllNodesRequest,
): Promise<NodeGroups[]> {
  const explanations: PortExplanation[] = [];
  for (const [done, { name }] of objects.nodes.entries()) {
    await onNode?.(done);
    const cluster = await explainedCluster(objects, { ...config, hostnameOverride: name }, families, warn, { isBare });
    explanations.push(...(await explainPorts(cluster, keys)));
  }
  const byPort = Map.groupBy(explanations, identityOf);
  return Array.from(byPort.values(), (own) => {
    const alike = Map.groupBy(own, (explained) => JSON.stringify(whatClientsSee(explained)));
    const groups = [...alike.values()].flatMap((members) => {
      const [explained] = members;
      return explained === undefined ? [] : [{ nodes: members.map(({ node }) => node), explained }];
    });
    return { groups: groups.sort((a, b) => b.nodes.length - a.nodes.length) };
  });
}

/** What is compared between nodes: which clients get which endpoints, not which endpoints a node calls local. */
function whatClientsSee({ frontends, endpoints, policies }: PortExplanation): unknown {
  return [
    whatIsMet(frontends),
    endpoints.map(({ address, cluster, local }) => [address, cluster?.used ?? null, local?.used ?? null]),
    policies.healthCheckNodePort !== 0 && policies.localReady > 0,
  ];
}

function whatIsMet(frontends: PortExplanation["frontends"]): unknown {
  return frontends.map(({ kind, address, port, owner, clients }) => ({ kind, address, port, owner, clients }));
}

/** For people: the first group in full, and how the others differ from it. */
export function nodeGroupsText(all: readonly NodeGroups[], options: TextOptions = {}): string {
  return all.map((one) => groupsText(one, options)).join("\n");
}

function groupsText({ groups }: NodeGroups, options: TextOptions): string {
  const [first, ...others] = groups;
  if (first === undefined) return "";
  const count = groups.reduce((sum, { nodes }) => sum + nodes.length, 0);
  const everywhere =
    count > SHOWN ? `The same on all ${count} nodes` : `The same on every node: ${first.nodes.join(", ")}`;
  const head =
    others.length === 0 ? `${everywhere}. Seen from ${first.explained.node}:` : `On ${nodesText(first.nodes, count)}:`;
  let text = safe(sentenceText(head, "", options.width)) + explanationText(first.explained, options);
  // Where each node has other endpoints of its own, what clients meet there is still the same.
  const isEach = others.length > SHOWN;
  const met = Map.groupBy(others, ({ explained }) =>
    isEach ? JSON.stringify(whatIsMet(explained.frontends)) : explained,
  );
  for (const alike of met.values()) {
    const changes = alike.slice(0, 1).flatMap(({ explained }) => clientChanges(first.explained, explained));
    const words = changes.map(({ what }) => what).filter((what) => alike.length === 1 || !what.startsWith("endpoint "));
    if (alike.length > 1) words.push("the endpoints in use differ from node to node (--node NAME)");
    const nodes = nodesText(
      alike.flatMap((one) => one.nodes),
      count,
    );
    const lines = words.map((what) => `  ${what}\n`);
    text += safe(`\nOn ${nodes}, other than on ${first.explained.node}:\n${lines.join("")}`);
  }
  return text;
}

/** `node-a, node-b`, `cp-0, ip-10-0-1-17… and 298 more`, or `all 300 nodes`. @param all how many nodes there are */
export function nodesText(names: readonly string[], all: number): string {
  if (names.length <= SHOWN) return names.join(", ");
  const short = names.slice(0, 2).map((name) => name.replace(/\..*/, "…"));
  return names.length === all ? `all ${all} nodes` : `${short.join(", ")} and ${names.length - 2} more`;
}
