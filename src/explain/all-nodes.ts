/** Asks the same question on every node of a cluster: which nodes give the same answer, and how the others differ. */
import type { KubeProxyConfig } from "../config/config.ts";
import { someOf } from "../logging/some-of.ts";
import type { IpFamily } from "../net/ip.ts";
import { clientChanges, identityOf } from "./compare.ts";
import { explainedCluster, explainPorts } from "./explained-cluster.ts";
import type { PortExplanation } from "./explanation.ts";
import type { Objects } from "./part-of-cluster.ts";
import { safe } from "./safe-text.ts";
import { explanationText, sentenceText, type TextOptions } from "./text.ts";

/** How many node names are printed; there may be thousands. */
const SHOWN = 4;

/** One service port of one family on all nodes, in groups of nodes with the same answer. */
interface NodeGroups {
  /** Largest first. */
  readonly groups: readonly { readonly nodes: readonly string[]; readonly explained: PortExplanation }[];
}

/** @param keys of service ports. */
export async function explainOnAllNodes(
  objects: Objects,
  keys: readonly string[],
  {
    config,
    families,
    warn,
    isBare = false,
    onNode,
  }: {
    readonly config: KubeProxyConfig;
    readonly families: readonly IpFamily[];
    readonly warn: (message: string) => void;
    readonly isBare?: boolean;
    /** Called before each node. */
    readonly onNode?: (done: number) => Promise<void>;
  },
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
    frontends.map(({ kind, address, port, owner, clients }) => ({ kind, address, port, owner, clients })),
    endpoints.map(({ address, cluster, local }) => [address, cluster?.used ?? null, local?.used ?? null]),
    policies.healthCheckNodePort !== 0 && policies.localReady > 0,
  ];
}

/** For people: the first group in full, and how the others differ from it. */
export function nodeGroupsText(all: readonly NodeGroups[], options: TextOptions = {}): string {
  return all.map((one) => groupsText(one, options)).join("\n");
}

function groupsText({ groups }: NodeGroups, options: TextOptions): string {
  const [first, ...others] = groups;
  if (first === undefined) return "";
  if (others.length === 0) {
    const same = `The same on every node: ${someOf(first.nodes, SHOWN)}. Seen from ${first.explained.node}:`;
    return safe(sentenceText(same, "", options.width)) + explanationText(first.explained, options);
  }
  let text =
    safe(sentenceText(`On ${someOf(first.nodes, SHOWN)}:`, "", options.width)) +
    explanationText(first.explained, options);
  for (const { nodes, explained } of others) {
    const changes = clientChanges(first.explained, explained).map(({ what }) => `  ${what}\n`);
    text += safe(`\nOn ${someOf(nodes, SHOWN)}, other than on ${first.explained.node}:\n${changes.join("")}`);
  }
  return text;
}
