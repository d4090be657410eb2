/** Clusters, plans and specifications for tests of `prove`. */

import type { KubeProxyConfig } from "../../src/contract/config/config.ts";
import type { ProvedVariant } from "../../src/contract/dataplane.ts";
import { type OfflineNode, offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import type { ClusterRecords } from "../../src/model/objects.ts";
import { MODES } from "../../src/modes/registry.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { plannedRules } from "../../src/tools/explain/planned-rules.ts";
import { fateText } from "../../src/tools/prove/fate.ts";
import type { Proof, Side } from "../../src/tools/prove/proof.ts";
import { rulesSide, specificationSide } from "../../src/tools/prove/sides.ts";
import type { Dump } from "../../src/trace/dump/recognise.ts";
import { prove } from "../../testkit/support/prove.ts";

export interface Variant extends ProvedVariant {
  readonly mode: string;
}

export const VARIANTS: readonly Variant[] = MODES.flatMap(({ name, proved = [] }) =>
  proved.map((variant) => ({ ...variant, mode: name })),
);

/** A cluster on one node, as a mode sees it. */
export interface ProvedCluster {
  readonly node: OfflineNode;
  readonly config: KubeProxyConfig;
  readonly specification: Side;
  readonly dumps: readonly Dump[];
}

/** @param settings parts of a KubeProxyConfiguration. */
export async function provedCluster(
  { mode, choose, deviations }: Variant,
  cluster: ClusterRecords,
  family: IpFamily,
  settings: object,
  nodeName: string,
): Promise<ProvedCluster> {
  const { config } = await checkedSettings({ config: settings, mode, node: nodeName, adjust: choose });
  const node = offlineNode(cluster, config, family, () => {});
  const { dumps } = await plannedRules(node, config);
  const { ownSockets } = rulesSide("rules", dumps, family, node.hostAddresses);
  const specification = specificationSide(cluster, node, config, deviations(config), ownSockets);
  return { node, config, specification, dumps };
}

/** @param dumps in place of the plan's. @param enough differences to stop at; undefined: none is. */
export function provedAgainst({ node, specification }: ProvedCluster, dumps: readonly Dump[], enough?: number): Proof {
  const { family, hostAddresses } = node;
  return prove(family, hostAddresses, [specification, rulesSide("rules", dumps, family, hostAddresses)], enough);
}

/** What differs, in words; empty where nothing does. */
export function differencesIn({ examples, unprovable }: Proof): string[] {
  if (unprovable !== undefined) return [unprovable];
  return examples.map(({ packet, fates }) => {
    const { inInterface, source, destination, destinationPort, protocol } = packet;
    const from = inInterface === "" ? "node" : inInterface;
    return `${from} ${source} to ${destination}:${destinationPort}/${protocol}: ${fates.map(fateText).join(" | ")}`;
  });
}
