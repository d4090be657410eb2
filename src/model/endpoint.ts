/** One backend of a service port: reference endpoints.md §5.2. */
import type { IpAddress } from "../net/ip.ts";
import { equalLists, equalOptionalLists } from "./equal-lists.ts";

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

/** Whether two endpoints are the same in every field; hints compare as ordered lists. Pure. */
export function equalEndpoints(a: Endpoint, b: Endpoint): boolean {
  return (
    a === b ||
    (a.text === b.text &&
      a.isLocal === b.isLocal &&
      a.isReady === b.isReady &&
      a.isServing === b.isServing &&
      a.isTerminating === b.isTerminating &&
      equalOptionalLists(a.zoneHints, b.zoneHints) &&
      equalOptionalLists(a.nodeHints, b.nodeHints))
  );
}

/** Whether two endpoint lists hold the same endpoints in the same order. Pure. */
export function equalEndpointLists(a: readonly Endpoint[], b: readonly Endpoint[]): boolean {
  return equalLists(a, b, equalEndpoints);
}
