/** Names that the ipvs mode uses in the kernel, the same as upstream's: reference ipvs.md §2, §6, §7. */

import type { ChainName } from "../../kernel/iptables/rule.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { IpsetDefinition, IpsetType } from "./ipset/ipset.ts";

/** The device that Service addresses are bound to; both families share it. It stays down. */
export const DUMMY_DEVICE = "kube-ipvs0";

export const CHAINS = {
  services: "KUBE-SERVICES" as ChainName,
  postrouting: "KUBE-POSTROUTING" as ChainName,
  nodePort: "KUBE-NODE-PORT" as ChainName,
  loadBalancer: "KUBE-LOAD-BALANCER" as ChainName,
  markMasquerade: "KUBE-MARK-MASQ" as ChainName,
  forward: "KUBE-FORWARD" as ChainName,
  proxyFirewall: "KUBE-PROXY-FIREWALL" as ChainName,
  sourceRangesFirewall: "KUBE-SOURCE-RANGES-FIREWALL" as ChainName,
  ipvsFilter: "KUBE-IPVS-FILTER" as ChainName,
  ipvsOutFilter: "KUBE-IPVS-OUT-FILTER" as ChainName,
} as const;

interface SetFacts {
  /** The IPv4 name. */
  readonly name: string;
  readonly type: IpsetType;
  /** The comment of rules that match the set. */
  readonly comment: string;
}

/**
 * The sets, in the order in which entries are added, and the reverse for deletions: admitted sources come before the
 * restriction, and entries that serve an address come before those that reject its other ports.
 */
export const SETS = {
  loopBack: {
    name: "KUBE-LOOP-BACK",
    type: "hash:ip,port,ip",
    comment: "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
  },
  clusterIP: {
    name: "KUBE-CLUSTER-IP",
    type: "hash:ip,port",
    comment: "Kubernetes service cluster ip + port for masquerade purpose",
  },
  externalIP: {
    name: "KUBE-EXTERNAL-IP",
    type: "hash:ip,port",
    comment: "Kubernetes service external ip + port for masquerade and filter purpose",
  },
  externalIPLocal: {
    name: "KUBE-EXTERNAL-IP-LOCAL",
    type: "hash:ip,port",
    comment: "Kubernetes service external ip + port with externalTrafficPolicy=local",
  },
  loadBalancerLocal: {
    name: "KUBE-LOAD-BALANCER-LOCAL",
    type: "hash:ip,port",
    comment: "Kubernetes service load balancer ip + port with externalTrafficPolicy=local",
  },
  loadBalancer: { name: "KUBE-LOAD-BALANCER", type: "hash:ip,port", comment: "Kubernetes service lb portal" },
  loadBalancerSourceIP: {
    name: "KUBE-LOAD-BALANCER-SOURCE-IP",
    type: "hash:ip,port,ip",
    comment: "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
  },
  loadBalancerSourceCIDR: {
    name: "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    type: "hash:ip,port,net",
    comment: "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
  },
  loadBalancerFirewall: {
    name: "KUBE-LOAD-BALANCER-FW",
    type: "hash:ip,port",
    comment: "Kubernetes service load balancer ip + port for load balancer with sourceRange",
  },
  nodePortLocalTCP: {
    name: "KUBE-NODE-PORT-LOCAL-TCP",
    type: "bitmap:port",
    comment: "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
  },
  nodePortTCP: {
    name: "KUBE-NODE-PORT-TCP",
    type: "bitmap:port",
    comment: "Kubernetes nodeport TCP port for masquerade purpose",
  },
  nodePortLocalUDP: {
    name: "KUBE-NODE-PORT-LOCAL-UDP",
    type: "bitmap:port",
    comment: "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
  },
  nodePortUDP: {
    name: "KUBE-NODE-PORT-UDP",
    type: "bitmap:port",
    comment: "Kubernetes nodeport UDP port for masquerade purpose",
  },
  nodePortLocalSCTP: {
    name: "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
    type: "hash:ip,port",
    comment: "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
  },
  nodePortSCTP: {
    name: "KUBE-NODE-PORT-SCTP-HASH",
    type: "hash:ip,port",
    comment: "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'",
  },
  healthCheckNodePort: {
    name: "KUBE-HEALTH-CHECK-NODE-PORT",
    type: "bitmap:port",
    comment: "Kubernetes health check node port",
  },
  ipvsIPs: { name: "KUBE-IPVS-IPS", type: "hash:ip", comment: "Addresses on the ipvs interface" },
} as const satisfies Record<string, SetFacts>;

export type SetId = keyof typeof SETS;

/** In the order of {@link SETS}. */
export const SET_IDS = Object.keys(SETS) as readonly SetId[]; // the keys of a constant

/** IPSET_MAXNAMELEN without the terminator: two IPv6 names are longer and are truncated. */
const NAME_LIMIT = 31;

/** The name for a family: `KUBE-…`, or `KUBE-6-…` truncated to 31 characters. */
export function setName(id: SetId, family: IpFamily): string {
  const { name } = SETS[id];
  return family === "IPv4" ? name : name.replace(/^KUBE-/, "KUBE-6-").slice(0, NAME_LIMIT);
}

export function setDefinition(id: SetId, family: IpFamily): IpsetDefinition {
  const { type } = SETS[id];
  return { name: setName(id, family), type, family: type === "bitmap:port" ? undefined : family };
}
