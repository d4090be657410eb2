/**
 * What a mode does with packets otherwise than Kubernetes' documents say, as docs/differences.md and the reference have it. They
 * are part of what `prove` compares the mode with.
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
  "own-external-serves":
    "a Service that lists its cluster IP as an external IP is served there as at one where internalTrafficPolicy leaves no endpoint (reference iptables.md §7)",
  "own-not-refused":
    "the node's own packets to external addresses without endpoints are left alone (reference iptables.md §2)",
  "hairpin-anywhere":
    "an endpoint of another node that comes by here and is led to itself is masqueraded, too (reference iptables.md §7)",
  "decided-at-socket":
    "TCP and UDP of the node and its pods is led at the socket: endpoints see the client's own address, a pod that is led to itself included; rules take what sockets cannot decide. How long a socket remembers its endpoint is not compared (reference ebpf.md §1.1, §1.4)",
  "loopback-node-ports":
    "node ports answer on IPv4 loopback addresses of the node, and packets to these from other addresses that are not led elsewhere are dropped (iptables.localhostNodePorts; CVE-2020-8558)",
  "refused-at-every-address":
    "node ports that have no endpoint for a client are refused or dropped at every address of the node, also where node ports do not answer (reference iptables.md §7)",
} as const;

export type Deviation = keyof typeof DEVIATIONS;
