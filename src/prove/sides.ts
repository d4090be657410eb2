/** What can be proved equal to what: a plan, dumps, the specification. */
import type { ClusterRecords } from "../cluster/manifests/read-manifests.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { Deviation } from "../dataplane/deviations.ts";
import { plannedRules } from "../explain/planned-rules.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { deviceAddresses } from "../trace/dump/device-addresses.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import { walkDumps } from "../trace/dump/walk-dumps.ts";
import { type KnownRoute, nodeFacts } from "../trace/facts.ts";
import type { Packet } from "../trace/packet.ts";
import type { Question } from "../trace/question.ts";
import { traceText } from "../trace/report/text.ts";
import type { Side } from "./proof.ts";
import { ruleFates } from "./rule-fates.ts";
import { specification } from "./specification.ts";

/** @param own all addresses of the node. */
export function rulesSide(
  name: string,
  dumps: readonly Dump[],
  family: IpFamily,
  own: readonly IpAddress[],
  routes: readonly KnownRoute[] = [],
): Side {
  const addresses = deviceAddresses(dumps);
  const sockets = dumps.flatMap((dump) => (dump.kind === "chains" ? (dump.ownSockets ?? []) : []));
  const hasSockets = dumps.some((dump) => dump.kind === "chains" && dump.ownSockets !== undefined);
  const facts = nodeFacts({ addresses: [...own, ...addresses], routes });
  return {
    name,
    addresses,
    ...(hasSockets && { ownSockets: sockets }),
    hasSocketStage: dumps.some(
      (dump) => dump.kind === "chains" && dump.chains(facts, undefined).some(({ stage }) => stage === "socket"),
    ),
    fates: ruleFates(dumps, family, facts),
    why(packet: Packet) {
      const root = walkDumps(dumps, packet, facts, { knowsClients: true, knowsDynamicSets: true });
      return traceText({ packet, rules: name, notes: [], root });
    },
  };
}

/** What the mode of the configuration plans. @throws NoRulesError */
export async function planSide(name: string, node: OfflineNode, config: KubeProxyConfig): Promise<Side> {
  const { dumps } = await plannedRules(node, config);
  return rulesSide(name, dumps, node.family, node.hostAddresses);
}

/** @param deviations of the mode that it is compared with. @param ownSockets of the proxy. */
export function specificationSide(
  cluster: ClusterRecords,
  node: OfflineNode,
  config: KubeProxyConfig,
  deviations: readonly Deviation[],
  ownSockets?: readonly Question[],
): Side {
  const { family, name, zone, hostAddresses, nodeIP, nodePortIPs, detector, serviceCIDRs } = node;
  const { services, endpointSlices } = cluster;
  const meaning = specification(
    {
      ...{ family, name, zone, nodeIP, detector, serviceCIDRs, services, endpointSlices },
      ownSockets,
      namesLoopback: node.nodePortAddresses.namesLoopback,
      addresses: hostAddresses,
      nodePortAddresses: nodePortIPs.kind === "all" ? undefined : nodePortIPs.ips,
      masqueradesAll: config.masqueradeAll,
    },
    new Set(deviations),
  );
  return { name: "specification", hasSlots: deviations.includes("shares-by-slots"), ...meaning };
}
