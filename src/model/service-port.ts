/**
 * One port of one Service as one address family sees it: reference core.md §3.
 */
import type { Protocol } from "../cluster/objects.ts";
import type { Cidr, IpAddress } from "../net/ip.ts";
import type { ServicePortName } from "./service-port-name.ts";

/** Immutable; equal content means nothing to do. */
export interface ServicePort {
  readonly name: ServicePortName;
  readonly clusterIP: IpAddress;
  readonly port: number;
  readonly protocol: Protocol;
  /** 0 when there is none. */
  readonly nodePort: number;
  /** This family only, order kept. Empty when the gate AllowServiceExternalIPs is off. */
  readonly externalIPs: readonly IpAddress[];
  readonly loadBalancerVIPs: readonly IpAddress[];
  /** Empty means no restriction (also when any range was a zero prefix). */
  readonly loadBalancerSourceRanges: readonly Cidr[];
  readonly sessionAffinity: "None" | "ClientIP";
  /** Seconds; 0 without affinity. */
  readonly stickyMaxAgeSeconds: number;
  readonly externalPolicyLocal: boolean;
  readonly internalPolicyLocal: boolean;
  /** 0 when there is none. */
  readonly healthCheckNodePort: number;
  /** nodePort, a VIP, or a stored external IP of this family exists (gate not considered). */
  readonly isExternallyAccessible: boolean;
}

/** Whether the Cluster endpoint set is needed (core.md §3.4). Pure. */
export function usesClusterEndpoints(port: ServicePort): boolean {
  return !port.internalPolicyLocal || port.isExternallyAccessible;
}

/** Whether the Local endpoint set is needed (core.md §3.4). Pure. */
export function usesLocalEndpoints(port: ServicePort): boolean {
  return port.internalPolicyLocal || (port.externalPolicyLocal && port.isExternallyAccessible);
}
