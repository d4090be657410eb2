import type { IpAddress } from "./ip.ts";
import type { Protocol } from "./protocol.ts";

/** A flow as conntrack knows it, in the original direction, with the source of its replies. */
export interface Flow {
  readonly protocol: Protocol;
  readonly sourceIP: IpAddress;
  readonly sourcePort: number;
  readonly destinationIP: IpAddress;
  readonly destinationPort: number;
  readonly replySourceIP: IpAddress;
  readonly replySourcePort: number;
  readonly replyDestinationIP: IpAddress;
  readonly replyDestinationPort: number;
}

/** Whether two flows are equal in both directions. */
export function isSameFlow(a: Flow, b: Flow): boolean {
  return (
    a.protocol === b.protocol &&
    a.sourceIP === b.sourceIP &&
    a.sourcePort === b.sourcePort &&
    a.destinationIP === b.destinationIP &&
    a.destinationPort === b.destinationPort &&
    a.replySourceIP === b.replySourceIP &&
    a.replySourcePort === b.replySourcePort &&
    a.replyDestinationIP === b.replyDestinationIP &&
    a.replyDestinationPort === b.replyDestinationPort
  );
}

/** Whether replies come from another address or port than the flow's destination. */
export function isTranslated(flow: Flow): boolean {
  return flow.replySourceIP !== flow.destinationIP || flow.replySourcePort !== flow.destinationPort;
}

/** What to do with TCP connections to endpoints that are gone: `connections.endTCP`, and the annotation of a Service. */
export const END_TCP = ["Gone", "Never"] as const;
export type EndTcp = (typeof END_TCP)[number];

export function isEndTcp(text: unknown): text is EndTcp {
  return END_TCP.some((known) => known === text);
}
