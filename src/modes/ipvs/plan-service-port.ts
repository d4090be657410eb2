/**
 * Plans one service port: virtual servers with their real servers, entries of IP sets, addresses on kube-ipvs0, and
 * load-balancer addresses that the node itself may not use. The same input gives the same plan in the same order.
 * Reference ipvs.md §3–7.
 */

import { isDrained, isWeighted } from "../../model/cells.ts";
import { type Endpoint, keepsFlows } from "../../model/endpoint.ts";
import { type FrontendKind, frontendsOf } from "../../model/frontend.ts";
import type { NodePlanConfig } from "../../model/node-plan-config.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { cidrContains, type IpAddress } from "../../net/ip.ts";
import { type ProtocolName, protocolName } from "../../net/protocol.ts";
import { withWeights } from "./config.ts";
import type { IpsetEntry } from "./ipset/ipset.ts";
import {
  IPVS_SERVICE_PERSISTENT,
  IPVS_SERVICE_SCHEDULER_FLAG_1,
  IPVS_SERVICE_SCHEDULER_FLAG_2,
  type VirtualServer,
} from "./kernel/ipvs.ts";
import type { SetId } from "./names.ts";

/** A virtual server and its real servers, which masquerade. */
export interface PlannedVirtualServer {
  readonly virtualServer: VirtualServer;
  /** The kind of frontend: decides which one wins if a node port has the same address and port. */
  readonly kind: FrontendKind;
  /** Drained ones come last. The text also names a real server: `ip:port`. */
  readonly endpoints: readonly Endpoint[];
}

interface PlannedEntry {
  readonly set: SetId;
  readonly entry: IpsetEntry;
}

/** A load-balancer address whose source ranges exclude the node: its answers to itself are dropped. */
export interface DeniedVip {
  readonly address: IpAddress;
  readonly protocol: ProtocolName;
  readonly port: number;
}

/** What one service port needs in the kernel. */
export interface ServicePortPlan {
  /** Of several with the same address and port, the last wins: an external address that is also the cluster IP. */
  readonly virtualServers: readonly PlannedVirtualServer[];
  readonly entries: readonly PlannedEntry[];
  /** Addresses for kube-ipvs0; each is also in `entries`, for KUBE-IPVS-IPS. */
  readonly addresses: readonly IpAddress[];
  readonly deniedVips: readonly DeniedVip[];
}

const NO_ENDPOINTS: readonly Endpoint[] = Object.freeze([]);

const NODE_PORT_SETS = {
  tcp: { all: "nodePortTCP", local: "nodePortLocalTCP" },
  udp: { all: "nodePortUDP", local: "nodePortLocalUDP" },
  sctp: { all: "nodePortSCTP", local: "nodePortLocalSCTP" },
} as const satisfies Record<ProtocolName, Record<"all" | "local", SetId>>;

/** Plans one service port. @param endpoints all its endpoints, sorted by text; empty if it has none. */
export function planServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
): ServicePortPlan {
  const { internalPolicyLocal, externalPolicyLocal, loadBalancerSourceRanges, nodePort, healthCheckNodePort } = port;
  const protocol = protocolName(port.protocol);
  const drained = endpoints.filter((endpoint) => isDrained(endpoint) && keepsFlows(endpoint));
  const routing = routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone });
  const { cluster = NO_ENDPOINTS, local = NO_ENDPOINTS } = routing.categories;
  const virtualServers: PlannedVirtualServer[] = [];
  const entries: PlannedEntry[] = [];
  const addresses: IpAddress[] = [];
  const deniedVips: DeniedVip[] = [];

  const enter = (set: SetId, entry: IpsetEntry): void => void entries.push({ set, entry });
  const bind = (address: IpAddress): void => {
    addresses.push(address);
    enter("ipvsIPs", { kind: "ip", address });
  };
  const entryOf = (address: IpAddress, number = port.port): IpsetEntry => {
    return { kind: "ip-port", address, protocol, port: number };
  };
  const serve = (kind: FrontendKind, address: IpAddress, number: number, isLocal: boolean): void => {
    // Without local endpoints, local clients are still answered by others: ipvs.md §4.
    const offered = isLocal && local.length > 0 ? local : cluster;
    const virtualServer = { address, protocol: port.protocol, port: number, ...schedulingOf(port, config, offered) };
    virtualServers.push({ virtualServer, kind, endpoints: drained.length > 0 ? [...offered, ...drained] : offered });
  };
  const serveNodePort = (): void => {
    const { all, local: localSet } = NODE_PORT_SETS[protocol];
    const ips = facts.nodePortIPs;
    const own = protocol === "sctp" ? ips.map((ip) => entryOf(ip, nodePort)) : [portEntry(nodePort)];
    for (const entry of ips.length === 0 ? [] : own) {
      enter(all, entry);
      if (externalPolicyLocal) enter(localSet, entry);
    }
    for (const ip of ips) serve("node-port", ip, nodePort, externalPolicyLocal);
  };
  const restrict = (vip: IpAddress): void => {
    const place = { address: vip, protocol, port: port.port };
    for (const network of loadBalancerSourceRanges) {
      enter("loadBalancerSourceCIDR", { kind: "ip-port-net", ...place, network });
    }
    enter("loadBalancerFirewall", entryOf(vip));
    // Packets of the node to this address also come from it, since it is one of the node's own.
    if (loadBalancerSourceRanges.some((range) => cidrContains(range, config.nodeIP))) {
      enter("loadBalancerSourceIP", { kind: "ip-port-ip", ...place, second: vip });
    } else {
      deniedVips.push(place);
    }
  };

  // For every local endpoint, ready or not: connections to itself must be masqueraded.
  for (const { ip, port: number, isLocal } of endpoints) {
    if (isLocal) enter("loopBack", { kind: "ip-port-ip", address: ip, protocol, port: number, second: ip });
  }
  for (const { kind, address } of frontendsOf(port, routing)) {
    if (address === undefined) {
      serveNodePort();
      continue;
    }
    if (kind !== "cluster-ip" && isOfOtherNode(address, facts)) continue;
    if (kind === "cluster-ip") enter("clusterIP", entryOf(address));
    else if (kind === "external-ip") enter(externalPolicyLocal ? "externalIPLocal" : "externalIP", entryOf(address));
    else {
      enter("loadBalancer", entryOf(address));
      if (externalPolicyLocal) enter("loadBalancerLocal", entryOf(address));
      if (loadBalancerSourceRanges.length > 0) restrict(address);
    }
    const isInternal = kind === "cluster-ip";
    serve(kind, address, port.port, isInternal ? internalPolicyLocal : externalPolicyLocal);
    if (isInternal || !facts.nodeAddresses.has(address)) bind(address);
  }
  if (healthCheckNodePort !== 0) enter("healthCheckNodePort", portEntry(healthCheckNodePort));
  return { virtualServers, entries, addresses, deniedVips };
}

function schedulingOf(
  { sessionAffinity, stickyMaxAgeSeconds, balancing }: ServicePort,
  config: PlanConfig,
  offered: readonly Endpoint[],
) {
  const byChance = withWeights(config.scheduler, isWeighted(offered));
  const scheduler = balancing === undefined ? byChance : "mh";
  const isPersistent = sessionAffinity === "ClientIP";
  // Without the first, connections fail whose hash is that of an endpoint that ends (weight 0).
  const withPort = balancing === "SourceHash" ? 0 : IPVS_SERVICE_SCHEDULER_FLAG_2;
  const ofMaglev = IPVS_SERVICE_SCHEDULER_FLAG_1 | withPort;
  const flags = (isPersistent ? IPVS_SERVICE_PERSISTENT : 0) | (scheduler === "mh" ? ofMaglev : 0);
  return { scheduler, flags, timeoutSeconds: isPersistent ? stickyMaxAgeSeconds : 0 };
}

function portEntry(port: number): IpsetEntry {
  return { kind: "port", port };
}

/** Whether to leave an external address to the Node that has it: on kube-ipvs0, it would make that Node unreachable from here. */
function isOfOtherNode(
  address: IpAddress,
  { nodeAddresses, otherNodes }: Omit<PlanFacts, "zone" | "nodePortIPs">,
): boolean {
  return !nodeAddresses.has(address) && otherNodes?.has(address) === true;
}

/** Constant while the process runs. */
export interface PlanConfig extends NodePlanConfig {
  /** The kernel's name of a scheduler: `rr`, `mh`, … */
  readonly scheduler: string;
}

/** May change between syncs; a change makes the sync full. */
export interface PlanFacts {
  readonly zone: string | undefined;
  /** The names of the other Nodes by their addresses. @default none */
  readonly otherNodes?: ReadonlyMap<IpAddress, string>;
  /** Addresses of devices other than kube-ipvs0, without loopback and link-local ones: never bound to kube-ipvs0. */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
  /** Addresses that node ports answer on, sorted. */
  readonly nodePortIPs: readonly IpAddress[];
}
