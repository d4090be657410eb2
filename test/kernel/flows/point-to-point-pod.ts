/** A pod of another kind of network plugin than that of the other pods here. */
import { type Prober, startProber } from "../../../testkit/net/namespace-prober.ts";
import type { Topology } from "../../../testkit/net/topology.ts";
import { nodeA } from "../../../testkit/net/topology-spec.ts";

/** A pod as Calico makes it: its own link, whose end on the node has only a link-local address. @param cgroup the client's. */
export async function addPointToPointPod(topology: Topology, cgroup?: string): Promise<Prober> {
  const ipv4 = "10.180.0.77";
  const ipv6 = "fd00:10:180::77";
  const pod = await topology.addPod({ name: "calico-pod", node: nodeA.name });
  const node = topology.namespace(nodeA.name);
  await node.configure([
    `link add cali0 type veth peer name cali netns ${pod.name}`,
    "addr add fe80::1/64 dev cali0 nodad",
    "link set cali0 up",
    `route add ${ipv4}/32 dev cali0`,
    `route add ${ipv6}/128 dev cali0`,
  ]);
  node.sysctl({ "net.ipv4.conf.cali0.proxy_arp": 1 });
  await pod.configure([
    `addr add ${ipv4}/32 dev cali`,
    `addr add ${ipv6}/128 dev cali nodad`,
    "link set cali up",
    "route add 169.254.1.1 dev cali",
    "route add default via 169.254.1.1 dev cali",
    "route add default via fe80::1 dev cali",
  ]);
  return startProber(pod, cgroup);
}
