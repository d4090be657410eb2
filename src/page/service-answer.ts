/** One service port of a running daemon, explained from what the daemon serves at this moment. */
import type { LiveDaemon } from "../daemon/live-daemon.ts";
import { modeNamed } from "../dataplane/registry.ts";
import { type ExplainedNode, explainPort } from "../explain/explain-port.ts";
import { clientFactsOf, ownerIn } from "../explain/explained-cluster.ts";
import { pictureOf } from "../explain/picture.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { ServiceAnswer } from "./answers.ts";

/** @param viewOf each family as a node. @returns undefined when no family has a service port with this key. */
export async function serviceAnswer(
  daemon: LiveDaemon,
  key: string,
  viewOf: (family: LiveDaemon["families"][number]) => Promise<OfflineNode>,
): Promise<ServiceAnswer | undefined> {
  const { name, traits, loadInspection } = modeNamed(daemon.config.mode);
  const inspection = await loadInspection();
  const families: ServiceAnswer["families"][number][] = [];
  for (const family of daemon.families) {
    if (!family.state.services.has(key)) continue;
    const node = await viewOf(family);
    // It may have gone while the addresses were read.
    const port = family.state.services.get(key);
    if (port === undefined) continue;
    const here: ExplainedNode = {
      node,
      config: daemon.config,
      mode: { name, traits },
      inspection,
      clients: clientFactsOf(node, daemon.config, daemon.podCIDRs, []),
      ownerOf: (frontend) => ownerIn(node, frontend),
    };
    const objects = { service: undefined, slices: family.state.slicesOf(port.name.service) };
    const explanation = { ...explainPort(here, port, objects), type: typeOf(port) };
    families.push({ explanation, picture: pictureOf(explanation, family.family) });
  }
  return families.length === 0 ? undefined : { key, families };
}

/** What the Service must be at least; the daemon does not keep what it says it is. */
function typeOf({ loadBalancerVIPs, nodePort }: ServicePort): string {
  return loadBalancerVIPs.length > 0 ? "LoadBalancer" : nodePort !== 0 ? "NodePort" : "ClusterIP";
}
