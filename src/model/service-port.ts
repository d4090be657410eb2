/**
 * One port of one Service in one address family (reference services.md §3).
 */

import { isDeepStrictEqual } from "../async/node-util.ts";
import { type Cidr, type IpAddress, joinHostPort } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";
import type { ServiceRecord } from "./objects.ts";
import type { ServicePortName } from "./service-port-name.ts";

/** Immutable, and compared by content. What is for TCP alone, other ports do not have from their Service. */
export interface ServicePort
  extends Pick<ServiceRecord, "sessionAffinity" | "preservesDestination" | "endTCP" | "balancing" | "leaveUnanswered"> {
  readonly name: ServicePortName;
  readonly clusterIP: IpAddress;
  readonly port: number;
  readonly protocol: Protocol;
  /** 0 if there is none. */
  readonly nodePort: number;
  /** Of this family only, in order. Empty if the gate AllowServiceExternalIPs is off. */
  readonly externalIPs: readonly IpAddress[];
  readonly loadBalancerVIPs: readonly IpAddress[];
  /** Empty means no restriction (also if any range was a zero prefix). */
  readonly loadBalancerSourceRanges: readonly Cidr[];
  /** Seconds; 0 without affinity. */
  readonly stickyMaxAgeSeconds: number;
  readonly externalPolicyLocal: boolean;
  readonly internalPolicyLocal: boolean;
  /** 0 if there is none. */
  readonly healthCheckNodePort: number;
  /** Has a node port, a VIP, or a stored external IP of this family (ignoring the gate). */
  readonly isExternallyAccessible: boolean;
  /** Keys of frontends (`frontend.ts`) that another service port owns; absent if there are none, the usual case. */
  readonly lostFrontends?: ReadonlySet<string>;
}

/** Whether two ports are equal in every field; lists compare element by element (endpoints.md §6.1). */
export function equalServicePorts(a: ServicePort, b: ServicePort): boolean {
  return a === b || isDeepStrictEqual(a, b);
}

/** The form for logs: `10.96.0.10:53/UDP` (services.md §3.3). */
export function servicePortText(port: ServicePort): string {
  return `${joinHostPort(port.clusterIP, port.port)}/${port.protocol}`;
}
