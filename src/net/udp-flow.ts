import type { IpAddress } from "./ip.ts";

/** A UDP flow as conntrack knows it, in the original direction, with who answered it. */
export interface UdpFlow {
  readonly sourceIP: IpAddress;
  readonly sourcePort: number;
  readonly destinationIP: IpAddress;
  readonly destinationPort: number;
  readonly replySourceIP: IpAddress;
  readonly replySourcePort: number;
  readonly replyDestinationIP: IpAddress;
  readonly replyDestinationPort: number;
}
