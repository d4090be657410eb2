/** Addresses and ports from the headers in trace messages. */
import { type IpAddress, ipFromBytes } from "../../../net/ip.ts";
import { LAYOUTS } from "../netlink-values.ts";
import type { TracedHeaders } from "./trace-event.ts";

/** The ends of a packet. Ports are undefined if the protocol has none or the kernel did not send the header. */
export interface PacketEnds {
  readonly source: IpAddress;
  readonly sourcePort: number | undefined;
  readonly destination: IpAddress;
  readonly destinationPort: number | undefined;
}

/** Undefined if the network header is truncated. @param hasPorts whether the transport header begins with two ports: tcp, udp, sctp. */
export function packetEnds({ network, transport }: TracedHeaders, hasPorts: boolean): PacketEnds | undefined {
  const version = (network[0] ?? 0) >> 4;
  if (version !== 4 && version !== 6) return undefined;
  const { addressAt, addressBytes } = LAYOUTS[version === 4 ? "ip" : "ip6"];
  if (network.length < addressAt.daddr + addressBytes) return undefined;
  const address = (offset: number): IpAddress => ipFromBytes(network.subarray(offset, offset + addressBytes));
  const ports = hasPorts && transport.length >= 4 ? new DataView(transport.buffer, transport.byteOffset) : undefined;
  return {
    source: address(addressAt.saddr),
    sourcePort: ports?.getUint16(0),
    destination: address(addressAt.daddr),
    destinationPort: ports?.getUint16(2),
  };
}

const FLAGS_AT = 13;
const SYN = 0x02;
const ACK = 0x10;

/** Whether a TCP segment opens a connection: RFC 9293 §3.1. */
export function isOpeningSegment({ transport }: TracedHeaders): boolean {
  return ((transport[FLAGS_AT] ?? 0) & (SYN | ACK)) === SYN;
}
