/** What clients can see of a mode: what the tests expect of it follows from this, and from nothing in the program. */
import type { ProxyMode } from "../src/modes/registry.ts";
import type { Protocol } from "../src/net/protocol.ts";

export interface ModeTraits {
  /** Protocols whose node ports answer on 127.0.0.1 of the node (IPv4), unless the configuration forbids it. */
  readonly localhostNodePorts: readonly Protocol[];
  /**
   * The node itself is refused at an external address without endpoints. Otherwise its packets leave by the default route
   * (reference iptables.md §2: OUTPUT has no jump to the external refusals).
   */
  readonly refusesNodeAtExternalAddresses: boolean;
  /**
   * The process carries the bytes itself. So pods see the node's address, SCTP is not served, nothing is served without the
   * process, and what comes from the node and its pods is not led to external IPs (reference userspace.md §1.3).
   */
  readonly carriesTraffic: boolean;
  /**
   * Service addresses are the node's own, with virtual servers of the kernel behind them: a Local policy binds the node and
   * its pods, too, as long as there is a local endpoint; a client on the node has the service's address as its own; and
   * without endpoints every client is refused (reference ipvs.md §3, §4).
   */
  readonly hasVirtualServers: boolean;
  /**
   * Load balancers of the host lead, one for each frontend that has endpoints: the node's own packets are not led, clients are not told
   * apart, and nothing is refused (reference windows.md §2.6, windows-practice.md §8).
   */
  readonly hasHostLoadBalancers: boolean;
  /**
   * Source ranges of load-balancer addresses are looked at before anything else, so that clients outside of them are dropped
   * where others are refused because there are no endpoints (reference nftables.md §3.4).
   */
  readonly checksSourcesFirst: boolean;
  /**
   * Protocols over which a process or pod of this node is led to an endpoint before it sends anything, where its address does
   * not decide. So the endpoint sees the client's own address, itself included (reference ebpf.md §1.4). At node ports only TCP.
   */
  readonly decidesAtSocket: readonly Protocol[];
}

/** Of a mode whose rules let the kernel translate addresses. */
const TRANSLATES_IN_KERNEL: ModeTraits = {
  localhostNodePorts: [],
  refusesNodeAtExternalAddresses: true,
  carriesTraffic: false,
  hasVirtualServers: false,
  hasHostLoadBalancers: false,
  checksSourcesFirst: false,
  decidesAtSocket: [],
};

const TRAITS: Readonly<Record<ProxyMode, ModeTraits>> = {
  iptables: {
    ...TRANSLATES_IN_KERNEL,
    localhostNodePorts: ["TCP", "UDP", "SCTP"],
    refusesNodeAtExternalAddresses: false,
  },
  nftables: { ...TRANSLATES_IN_KERNEL, checksSourcesFirst: true },
  ebpf: { ...TRANSLATES_IN_KERNEL, checksSourcesFirst: true, decidesAtSocket: ["TCP", "UDP"] },
  ipvs: { ...TRANSLATES_IN_KERNEL, hasVirtualServers: true },
  userspace: { ...TRANSLATES_IN_KERNEL, localhostNodePorts: ["TCP", "UDP"], carriesTraffic: true },
  kernelspace: { ...TRANSLATES_IN_KERNEL, hasHostLoadBalancers: true },
};

export function traitsOfMode(mode: ProxyMode): ModeTraits {
  return TRAITS[mode];
}
