/** Every address of every service port that requests can be sent to, and who can send them. */

import { familyOf, type IpAddress, type IpFamily, joinHostPort } from "../src/net/ip.ts";
import type { ClusterView, DemoService, DemoServicePort } from "./cluster-view.ts";

/** Where a request starts: a pod of the node, the node itself, a machine outside. */
export const positions = ["pod", "node", "client"] as const;
export type Position = (typeof positions)[number];

export type AddressKind = "cluster IP" | "node port" | "localhost" | "external IP" | "load balancer";

/** One address of a service port that can be probed. */
export interface Target {
  readonly service: DemoService;
  readonly port: DemoServicePort;
  readonly family: IpFamily;
  readonly kind: AddressKind;
  readonly address: IpAddress;
  /** The port to connect to: the service port or the node port. */
  readonly number: number;
}

const LOCALHOST = "127.0.0.1" as IpAddress; // a literal address
const families = ["IPv4", "IPv6"] as const;

/** The positions that can reach an address of this kind: only the node reaches its loopback. */
export function positionsOf(kind: AddressKind): readonly Position[] {
  return kind === "localhost" ? ["node"] : positions;
}

/**
 * The targets that each Service owns: if several claim an address and port, only one has it.
 *
 * @param nodeAddresses the node's address in each family, for node ports.
 * @param isLed whether a node port answers on 127.0.0.1 too.
 */
export function targetsOf(
  view: ClusterView,
  nodeAddresses: Readonly<Record<IpFamily, IpAddress>>,
  isLed: (target: Target) => boolean,
): readonly Target[] {
  const { targets, ownerOf } = claimsOf(view, nodeAddresses);
  return targets.filter(
    (target) => ownerOf(target) === target.service && (target.kind !== "localhost" || isLed(target)),
  );
}

/** One line for each claimed address and port that another Service has. */
export function lostClaims(view: ClusterView, nodeAddresses: Readonly<Record<IpFamily, IpAddress>>): readonly string[] {
  const { targets, ownerOf } = claimsOf(view, nodeAddresses);
  const lost = targets.filter((target) => target.kind !== "localhost" && ownerOf(target) !== target.service);
  return lost.map((target) => {
    const { service, port, kind, address, number } = target;
    const place = `${kind} ${joinHostPort(address, number)}`;
    return `${service.key} ${port.protocol} ${port.port} is not probed at ${place}: ${ownerOf(target)?.key} has it`;
  });
}

function claimsOf(view: ClusterView, nodeAddresses: Readonly<Record<IpFamily, IpAddress>>) {
  const targets = view.services.flatMap((service) =>
    service.ports.flatMap((port) => targetsOfPort(service, port, nodeAddresses)),
  );
  const owners = new Map<string, DemoService>();
  for (const target of targets.toSorted(byRight)) {
    const place = placeOf(target);
    if (!owners.has(place)) owners.set(place, target.service);
  }
  return { targets, ownerOf: (target: Target) => owners.get(placeOf(target)) };
}

/** The key of a place that only one Service can have. */
function placeOf({ address, number, port: { protocol } }: Target): string {
  return `${address} ${number} ${protocol}`;
}

/** The first of several Services that claim a place has it; the proxy logs which others lost (docs/architecture.md, frontends). */
function byRight(a: Target, b: Target): number {
  const kinds: readonly AddressKind[] = ["cluster IP", "load balancer", "external IP", "node port", "localhost"];
  return kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || (a.service.key < b.service.key ? -1 : 1);
}

function targetsOfPort(
  service: DemoService,
  port: DemoServicePort,
  nodeAddresses: Readonly<Record<IpFamily, IpAddress>>,
): Target[] {
  const targets: Target[] = [];
  for (const family of families) {
    const clusterIP = service.clusterIPs.find((address) => familyOf(address) === family);
    // A Service without a cluster IP of a family has nothing in that family.
    if (clusterIP === undefined) continue;
    const add = (kind: AddressKind, address: IpAddress, number: number): void => {
      if (familyOf(address) === family) targets.push({ service, port, family, kind, address, number });
    };
    add("cluster IP", clusterIP, port.port);
    for (const address of service.externalIPs) add("external IP", address, port.port);
    for (const address of service.loadBalancerIPs) add("load balancer", address, port.port);
    if (port.nodePort === 0) continue;
    add("node port", nodeAddresses[family], port.nodePort);
    if (family === "IPv4") add("localhost", LOCALHOST, port.nodePort);
  }
  const order: readonly AddressKind[] = ["cluster IP", "node port", "localhost", "external IP", "load balancer"];
  return targets.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
}
