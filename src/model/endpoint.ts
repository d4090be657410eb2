/** One endpoint of a service port (reference endpoints.md §5.2). */
import type { IpAddress } from "../net/ip.ts";

export interface Endpoint {
  readonly ip: IpAddress;
  readonly port: number;
  /** `ip:port` or `[ip]:port`: identity and sort key (byte-wise). */
  readonly text: string;
  readonly isLocal: boolean;
  readonly isReady: boolean;
  readonly isServing: boolean;
  readonly isTerminating: boolean;
  /** `undefined` if there are none. */
  readonly zoneHints: readonly string[] | undefined;
  readonly nodeHints: readonly string[] | undefined;
  /** Its slice's weight; the largest if several slices have the address. Absent if none names one. */
  readonly weight?: number;
  /** Why this node leaves it out of new connections: it does not answer. Gone with the next change of its Service's slices. */
  readonly leftOut?: string;
}

/**
 * Whether existing flows may stay with an endpoint: it serves, or it counts as ready without serving
 * (`publishNotReadyAddresses`), so that new flows go to it as well.
 */
export function keepsFlows({ isReady, isServing }: Endpoint): boolean {
  return isReady || isServing;
}
