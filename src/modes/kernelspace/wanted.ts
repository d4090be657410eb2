/** The wanted state of the kernelspace mode: what service ports need in HNS, by kind and key. */

import { comparePrecedence } from "../../model/frontend.ts";
import { KeyOwners } from "../../model/key-owners.ts";
import type { IpAddress } from "../../net/ip.ts";
import { type Parts, WantedParts } from "../shared/wanted-parts.ts";
import { LB_DSR } from "./hcn/documents.ts";
import type { LoadBalancerKind, PlannedLoadBalancer, ServicePortPlan } from "./plan-service-port.ts";

/** Why an address needs an endpoint; the first of several reasons counts. */
const REASONS = ["local", "remote", "vip"] as const;
export type EndpointReason = (typeof REASONS)[number];

export interface WantedEndpoint {
  readonly address: IpAddress;
  readonly reason: EndpointReason;
}

export interface KernelspaceKinds {
  /** By frontend. Two ports of a Service share one health check. */
  readonly loadBalancers: PlannedLoadBalancer;
  /** By address. */
  readonly endpoints: WantedEndpoint;
  /** Load balancers without direct server return: HNS takes a block of dynamic ports for each. */
  readonly indirect: true;
}

export type KernelspaceWanted = WantedParts<KernelspaceKinds>;

/** An empty wanted state. */
export function newWanted(): KernelspaceWanted {
  return new WantedParts<KernelspaceKinds>({
    loadBalancers: new KeyOwners<PlannedLoadBalancer>((a, b) => compareKinds(a.kind, b.kind)),
    endpoints: new KeyOwners<WantedEndpoint>((a, b) => REASONS.indexOf(a.reason) - REASONS.indexOf(b.reason)),
    indirect: new KeyOwners<true>(),
  });
}

/** The parts of a plan. */
export function partsOf({ loadBalancers, endpoints, vip }: ServicePortPlan): Parts<KernelspaceKinds> {
  const endpoint = (address: IpAddress, reason: EndpointReason) => [address, { address, reason }] as const;
  return {
    loadBalancers: loadBalancers.map((one) => [one.key, one]),
    endpoints: [
      ...(vip === undefined ? [] : [endpoint(vip, "vip")]),
      ...Array.from(endpoints, ([address, isLocal]) => endpoint(address, isLocal ? "local" : "remote")),
    ],
    indirect: loadBalancers.filter(({ flags }) => (flags & LB_DSR) === 0).map(({ key }) => [key, true]),
  };
}

function compareKinds(a: LoadBalancerKind, b: LoadBalancerKind): number {
  if (a === "health-check" || b === "health-check") return Number(a === "health-check") - Number(b === "health-check");
  return comparePrecedence(a, b);
}
