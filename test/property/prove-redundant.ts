/** What may go, or be elsewhere, without a difference in the examples' cluster, and why: proved, one at a time (prove-mutants.test.ts). */
export const REDUNDANT: readonly (readonly [pattern: RegExp, reason: string])[] = [
  // Removed or moved, it is the same.
  [/"10\.96\.0\.70"/, "other ports of a cluster IP are refused as well as those without endpoints"],
  [
    /"filter-input".*"(?:service-endpoints-check|remember-clients)"/,
    "no Service of the examples has an address of the node, or affinity and an endpoint on the node's network",
  ],
  [/\{"chain":"(?:nodeport|service)-endpoints-check".*drop/, "no local policy is without endpoints at these addresses"],
  [/"service-endpoints-check".*@rejected-frontends/, "no external address of the examples is without endpoints"],
  [/"chain":"remember-(?:clients|frontends-\d+|nodeports-\d+)"/, "affinity is tried over TCP only"],
  [/"chain":"(?:frontend|nodeport)-cluster-endpoints".*"pick-clients-/, "no Service has affinity and a local policy"],
  [
    /-A (?:INPUT|OUTPUT) .*KUBE-(?:PROXY-)?FIREWALL/,
    "what the node sends to itself meets the chain at input and at output",
  ],
  [/KUBE-FW-.*comment "other traffic to/, "a comment without a target"],
  [/health check/, "nothing else of the examples' rules drops these packets"],
  [/KUBE-FORWARD/, "the policy of FORWARD accepts, and only first packets are asked"],
  [/-A FORWARD .*KUBE-EXTERNAL-SERVICES/, "no external address of the examples is without endpoints"],
  [/-d 127\.0\.0\.0\/8 .*localhost_nps/, "counts, and leads where the next rule leads"],
  [/KUBE-POSTROUTING -j MARK/, "takes the mark away, which nothing looks at afterwards"],
  [/KUBE-SEP-\w+ -s 10\.180\.0\.12\/32 .*checkout/, "an endpoint that terminates: only clients outside are led to it"],
  // The same in ipvs mode.
  [/-A FORWARD .*KUBE-PROXY-FIREWALL/, "addresses of load balancers are the node's own: nothing to them is forwarded"],
  [/KUBE-EXTERNAL-IP-LOCAL/, "no external IP of the examples has the Local policy"],
  [/-A KUBE-SERVICES .*-j ACCEPT$/, "keeps packets from rules for node ports, which are at other addresses"],
  [/add KUBE-LOOP-BACK 10\.180\.0\.25,/, "an endpoint that is not ready: no client is led to it"],
  [/add KUBE-CLUSTER-IP 10\.96\.0\.(?:61|70),/, "no endpoint: its virtual server refuses as well"],
  [/add KUBE-NODE-PORT-TCP 30(?:081|083|443)$/, "the policy is Local, and the set for it is asked before"],
  // The same in userspace mode.
  [/KUBE-NODEPORT-NON-LOCAL/, "the policy of INPUT accepts"],
  [/KUBE-PORTALS-\w+ -d 198\.51\.100\.40.*--dst-type LOCAL/, "the external IP is no address of the node"],
  [/KUBE-PORTALS-HOST -s 10\.200\.0\.64\/26 /, "the node has no address in the range"],
  // Moved, it is the same.
  [
    /^moved -A KUBE-(?:EXTERNAL-SERVICES|SERVICES|NODEPORTS|NODE-PORT|PORTALS-\w+|NODEPORT-\w+) .*(?:-d|--dport|--match-set) /,
    "no packet meets two of the chain's rules",
  ],
  [/^moved -A KUBE-FW-.* -s /, "ranges without an address in common: no packet meets two of them"],
  [/^moved -A (?:INPUT|FORWARD|OUTPUT) .*-j KUBE-/, "chains of the filter table are for different packets"],
  [/^moved -A PREROUTING .*handle /, "addresses of Services are no addresses of the node: no packet meets both chains"],
  [
    /^moved -A KUBE-EXT-.*masquerade LOCAL traffic/,
    "the rule before it is for pods, and the node has no address of a pod",
  ],
  [
    /^moved -A KUBE-SEP-.*DNAT/,
    "an endpoint that terminates: only clients outside are led to it, and it is no client then",
  ],
  [/^moved -A KUBE-SERVICES .*nodeports; NOTE/, "addresses of Services are no addresses of the node"],
  [/^moved -A KUBE-IPVS-FILTER .*-j RETURN$/, "returns next to each other"],
  [
    /^moved \{"chain":"filter-\w+",.*(?:endpoints-check|remember-clients)"/,
    "the chains are for different packets, or leave the packet as it is",
  ],
  [/^moved \{"chain":"services",.*@nodeport-ips/, "addresses of Services are no addresses of the node"],
  [/^moved \{"chain":"masquerading"/, "either masquerades, and once is enough"],
  [/^moved \{"chain":"service-.*@affinity-/, "a client is remembered for one endpoint"],
  [
    /^moved \{"chain":"(?:external-.*|\w+-local-policy)","expr":\[\{"match":\{"op":"==","left":\{"fib".*mangle/,
    "the rule before it is for pods, and the node has no address of a pod",
  ],
  [
    /^moved \{"chain":"(?:\w+-)+endpoints","expr":\[\{"jump":\{"target":"pick-/,
    "which sets are asked first decides nothing: a frontend is in those of one number",
  ],
  [
    /^moved \{"chain":"nodeport-endpoints-check"/,
    "node ports without endpoints, and without endpoints here, are different ones",
  ],
  [/^moved \{"chain":"frontend",.*@local-policy-frontends/, "what the rule before it masquerades are other frontends"],
];
