/**
 * Where a mode treats packets differently from Kubernetes' documentation, as listed in docs/differences.md and the
 * reference. `prove` takes them into account when it compares the mode.
 */

export const DEVIATIONS = {
  "other-ports-refused": "ports of a cluster IP that no Service has are refused (reference nftables.md §3.3)",
  "unallocated-dropped": "addresses of a ServiceCIDR that no Service has are dropped (reference nftables.md §3.3)",
  "sources-first":
    "source ranges are looked at before it is known that there are no endpoints: dropped, not refused (reference nftables.md §3.4)",
  "cluster-address-masqueraded":
    "an external IP that is another Service's cluster IP is masqueraded as that one is (reference nftables.md §3.3)",
  "external-opens-balancer":
    "an address that is an external IP and a load-balancer IP of one Service is open to all sources (reference iptables.md §7)",
  "node-port-opens-balancer":
    "a load-balancer IP that is an address of the node, at a port whose number is a node port's, is open to all sources (reference iptables.md §7)",
  "shares-by-slots":
    "of more than 64 endpoints each has a share of the connections that differs from the equal one by an eighth at most (reference flat-nftables.md)",
  "own-external-serves":
    "a Service that lists its cluster IP as an external IP is served there as at one where internalTrafficPolicy leaves no endpoint (reference iptables.md §7)",
  "own-not-refused":
    "the node's own packets to external addresses without endpoints that are not its own are left alone (reference iptables.md §2)",
  "hairpin-anywhere":
    "an endpoint of another node that comes by here and is led to itself is masqueraded, too (reference iptables.md §7)",
  "decided-at-socket":
    "TCP and UDP of the node and its pods is led at the socket: endpoints see the client's own address, a pod that is led to itself included; rules take what sockets cannot decide (reference ebpf.md §1.1, §1.4)",
  "pods-not-at-socket": "of that, pods take no part: all that they send takes the rules (ebpf.hostNamespaceOnly)",
  "loopback-node-ports":
    "node ports answer on IPv4 loopback addresses of the node, and packets to these from other addresses that are not led elsewhere are dropped (iptables.localhostNodePorts; CVE-2020-8558)",
  "loopback-relayed":
    "where nodePortAddresses names loopback, the proxy itself carries TCP to node ports at 127.0.0.1 and ::1, to endpoints of this node where the policy is Local; other node ports at loopback addresses are refused (KEP-6032; reference releases.md §1.6)",
  "loopback-relayed-extended":
    "where nodePortAddresses names loopback, the proxy itself carries TCP and UDP to node ports at 127.0.0.1 and ::1, to endpoints of the whole cluster; other node ports at loopback addresses are refused (nftables.localhostNodePorts: Extended)",
  "refused-at-every-address":
    "node ports that have no endpoint for a client are refused or dropped at every address of the node, also where node ports do not answer (reference iptables.md §7)",
  "bound-ports-refused":
    "addresses of Services are the node's own, and refuse at what is no port of a Service, but for health-check node ports (reference ipvs.md §2, §7)",
  "unserved-node-ports-masqueraded":
    "what the node itself sends to its addresses, and all that cluster and load-balancer IPs are sent, is masqueraded at the number of a node port, also where no node port answers (reference ipvs.md §7)",
  "loopback-source-kept": "packets from loopback addresses are never masqueraded (reference ipvs.md §7)",
  "local-falls-back":
    "a Local policy without endpoints here leads to those of the cluster, where the Service is offered to the outside, and is refused otherwise, not dropped (reference ipvs.md §4)",
  "local-binds-node": "externalTrafficPolicy Local binds the node and its pods, too (reference ipvs.md §3)",
  "hairpin-of-unused":
    "a pod that is led to itself is masqueraded also where the one Service that places it on this node does not use it (reference ipvs.md §6)",
  "own-endpoint-masqueraded":
    "what the node sends to an endpoint at the address that it sends from is masqueraded, also where it asks no Service (reference ipvs.md §6)",
  "own-barred-at-balancer":
    "source ranges are looked at before it is known that there are no endpoints, but what the node itself sends is dropped only from the load balancer's own address, where the ranges leave the node out (reference ipvs.md §7)",
  "own-external-decides":
    "a Service that lists its cluster IP as an external IP is served there as at that one, and masqueraded as at either (reference ipvs.md §3, §7)",
  "masqueraded-by-source":
    "where local pods cannot be told from others, what the node sends from a cluster IP to a port that this one has is masqueraded, wherever it goes (reference ipvs.md §7)",
  "sctp-unserved": "SCTP is not led anywhere (reference userspace.md §1.6)",
  "proxy-connects": "the proxy carries the bytes: endpoints see the node as the client (reference userspace.md §1.7)",
  "own-external-left":
    "what the node itself sends to an external IP that is not its own is left alone (reference userspace.md §1.3)",
  "bridged-external-left":
    "what comes by a port of a bridge to an external IP that is not the node's is left alone: it goes to whichever machine has the address (reference userspace.md §1.3)",
  "proxy-ports-answer":
    "the proxy's own sockets answer who asks them directly; what they do then is not compared (reference userspace.md §1.4)",
  "loopback-served": "node ports answer on loopback addresses of the node, too (reference userspace.md §1.3)",
  "barred-left":
    "clients that loadBalancerSourceRanges leave out are left alone, not dropped: no rule takes them; of a load balancer's addresses a node in the ranges may ask from the one that it asks (reference userspace.md §1.3)",
} as const;

export type Deviation = keyof typeof DEVIATIONS;
