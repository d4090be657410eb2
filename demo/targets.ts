/** Every address of every service port that a request can be sent to, and who can send one. Pure. */

import type { ModeTraits } from "../src/dataplane/traits.ts";
import { familyOf, type IpAddress, type IpFamily } from "../src/net/ip.ts";
import type { ClusterView, DemoService, DemoServicePort } from "./cluster-view.ts";
import { type AddressKind, type Position, positions, type Target } from "./expectations.ts";

const LOCALHOST = "127.0.0.1" as IpAddress; // a literal address
const families = ["IPv4", "IPv6"] as const;

/** Who can ask an address of this kind: the node's loopback is the node's own. */
export function positionsOf(kind: AddressKind): readonly Position[] {
  return kind === "localhost" ? ["node"] : positions;
}

/** @param nodeAddresses the node's address of each family, for node ports. */
export function targetsOf(
  view: ClusterView,
  nodeAddresses: Readonly<Record<IpFamily, IpAddress>>,
  traits: ModeTraits,
): readonly Target[] {
  return view.services.flatMap((service) =>
    service.ports.flatMap((port) => targetsOfPort(service, port, nodeAddresses, traits)),
  );
}

function targetsOfPort(
  service: DemoService,
  port: DemoServicePort,
  nodeAddresses: Readonly<Record<IpFamily, IpAddress>>,
  traits: ModeTraits,
): Target[] {
  const targets: Target[] = [];
  for (const family of families) {
    const clusterIP = service.clusterIPs.find((address) => familyOf(address) === family);
    // Without a cluster IP of a family, a service has nothing in that family.
    if (clusterIP === undefined) continue;
    const add = (kind: AddressKind, address: IpAddress, number: number): void => {
      if (familyOf(address) === family) targets.push({ service, port, family, kind, address, number });
    };
    add("cluster IP", clusterIP, port.port);
    for (const address of service.externalIPs) add("external IP", address, port.port);
    for (const address of service.loadBalancerIPs) add("load balancer", address, port.port);
    if (port.nodePort === 0) continue;
    add("node port", nodeAddresses[family], port.nodePort);
    const hasLocalhost = traits.localhostNodePorts.some((protocol) => protocol === port.protocol);
    if (family === "IPv4" && hasLocalhost) add("localhost", LOCALHOST, port.nodePort);
  }
  const order: readonly AddressKind[] = ["cluster IP", "node port", "localhost", "external IP", "load balancer"];
  return targets.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
}
