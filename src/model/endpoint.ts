/** One backend of a service port: reference endpoints.md §5.2. */
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
  /** `undefined` when there are none. */
  readonly zoneHints: readonly string[] | undefined;
  readonly nodeHints: readonly string[] | undefined;
}

/**
 * Whether flows that an endpoint has may stay with it: it serves, or it is published though it does not (`publishNotReadyAddresses`), and
 * new ones are led to it. Pure.
 */
export function keepsFlows({ isReady, isServing }: Endpoint): boolean {
  return isReady || isServing;
}
