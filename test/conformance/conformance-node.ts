/** The node that the cases were captured on. */
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { newRunName } from "../../testkit/net/run-name.ts";

/** Bare but for what the cases' README lists. Remove it. */
export async function conformanceNode(name: string): Promise<NetworkNamespace> {
  const node = await NetworkNamespace.create(newRunName(name));
  await node.configure([
    "link add eth0 type veth peer name eth0-peer",
    "link set eth0-peer up",
    "link set eth0 up",
    "addr add 10.200.0.2/24 dev eth0",
    "addr add fd00:200::2/64 dev eth0 nodad",
    "link add cni0 type bridge",
    "link set cni0 up",
    "addr add 10.180.0.1/24 dev cni0",
    "addr add fd00:10:180::1/80 dev cni0 nodad",
    "route add default via 10.200.0.1",
    "route add ::/0 via fd00:200::1",
  ]);
  node.sysctl({ "net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1 });
  return node;
}
