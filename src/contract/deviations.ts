/**
 * Where a mode treats packets differently from Kubernetes' documentation, as listed in docs/differences.md and the
 * reference. `prove` takes them into account when it compares the mode.
 */

export const DEVIATIONS = {
  "other-ports-refused": "ports of a cluster IP that no Service uses are refused (reference nftables.md §3.3)",
  "unallocated-dropped":
    "packets to addresses of a ServiceCIDR that no Service uses are dropped (reference nftables.md §3.3)",
  "sources-first":
    "source ranges are checked first: without endpoints, clients outside of them are dropped, not refused (reference nftables.md §3.4)",
  "cluster-address-masqueraded":
    "an external IP that is another Service's cluster IP is masqueraded like that cluster IP (reference nftables.md §3.3)",
  "external-opens-balancer":
    "an address that is both an external IP and a load balancer IP of one Service is open to all sources (reference iptables.md §7)",
  "node-port-opens-balancer":
    "a load balancer IP that is an address of the node is open to all sources at a port whose number is a node port's (reference iptables.md §7)",
  "shares-by-slots":
    "with more than 64 endpoints, each one's share of the connections differs from an equal share by at most an eighth (reference flat-nftables.md)",
  "hashed-in-order":
    "a Service's hash asks its endpoints in turn, each with a seed of its own: another endpoint than in modes with tables (docs/which-endpoint.md)",
  "hashed-by-tables":
    "a Service that asks for a hash has the endpoint that the sparse tables name for the client, the same on every node (docs/which-endpoint.md)",
  "own-external-serves":
    "a Service that lists its cluster IP as an external IP is served there like an external IP if internalTrafficPolicy leaves no endpoint (reference iptables.md §7)",
  "own-not-refused":
    "the node's own packets to external addresses without endpoints are not refused, unless the address is the node's (reference iptables.md §2)",
  "hairpin-anywhere":
    "an endpoint of another node that connects through this node and reaches itself is masqueraded too (reference iptables.md §7)",
  "decided-at-socket":
    "TCP and UDP sockets of the node and its pods connect to the endpoint itself: endpoints see the client's own address, even a pod that reaches itself; rules handle what sockets cannot decide (reference ebpf.md §1.1, §1.4)",
  "pods-not-at-socket":
    "only the host's sockets connect to the endpoint itself: everything that pods send passes the rules (ebpf.hostNamespaceOnly)",
  "loopback-node-ports":
    "node ports answer on IPv4 loopback addresses of the node; other packets to these are dropped unless they come from loopback (iptables.localhostNodePorts; CVE-2020-8558)",
  "loopback-relayed":
    "if nodePortAddresses names loopback, the proxy itself carries TCP to node ports at 127.0.0.1 and ::1, only to local endpoints if the policy is Local; other node ports at loopback addresses are refused (KEP-6032; reference releases.md §1.6)",
  "refused-at-every-address":
    "node ports without an endpoint for a client are refused or dropped at every address of the node, even where node ports do not answer (reference iptables.md §7)",
  "bound-ports-refused":
    "addresses of Services are the node's own, and refuse ports that no Service uses, except health-check node ports (reference ipvs.md §2, §7)",
  "unserved-node-ports-masqueraded":
    "packets from the node to its own addresses, and all packets to cluster and load balancer IPs, are masqueraded if their port is a node port's number, even where no node port answers (reference ipvs.md §7)",
  "loopback-source-kept": "packets from loopback addresses are never masqueraded (reference ipvs.md §7)",
  "local-falls-back":
    "a Local policy without endpoints on this node leads to those of the cluster if the Service is exposed to the outside, and otherwise refuses instead of dropping (reference ipvs.md §4)",
  "local-binds-node": "externalTrafficPolicy Local also applies to the node and its pods (reference ipvs.md §3)",
  "hairpin-of-unused":
    "a pod that reaches itself is masqueraded even if the only Service that places it on this node does not use it (reference ipvs.md §6)",
  "own-endpoint-masqueraded":
    "packets from the node to an endpoint at their own source address are masqueraded, even without a Service (reference ipvs.md §6)",
  "own-barred-at-balancer":
    "source ranges are checked before endpoints, but the node's own packets are dropped only from the load balancer's own address, if the ranges exclude the node (reference ipvs.md §7)",
  "own-external-decides":
    "a Service that lists its cluster IP as an external IP is served there like an external IP, and masqueraded if a cluster IP or an external IP would be (reference ipvs.md §3, §7)",
  "others-addresses-left":
    "packets to an external or load balancer address that is another Node's are left to that Node (docs/differences.md)",
  "masqueraded-by-source":
    "if local pods cannot be told from others, packets from the node with a cluster IP as their source, to a port of that cluster IP, are masqueraded wherever they go (reference ipvs.md §7)",
  "sctp-unserved": "SCTP is not served (reference userspace.md §1.6)",
  "proxy-connects": "the proxy carries the bytes: endpoints see the node as the client (reference userspace.md §1.7)",
  "own-external-left":
    "packets from the node to an external IP that is not its own are not redirected (reference userspace.md §1.3)",
  "bridged-external-left":
    "packets through a bridge port to an external IP that is not the node's are not redirected: they go to the machine that has the address (reference userspace.md §1.3)",
  "proxy-ports-answer":
    "the proxy's own sockets answer clients that connect to them directly; what they do then is not compared (reference userspace.md §1.4)",
  "loopback-served": "node ports also answer on loopback addresses of the node (reference userspace.md §1.3)",
  "barred-left":
    "packets of clients outside of loadBalancerSourceRanges are not redirected, instead of dropped; if the ranges include the node, it may connect to a load balancer's address from that address (reference userspace.md §1.3)",
} as const;

export type Deviation = keyof typeof DEVIATIONS;
