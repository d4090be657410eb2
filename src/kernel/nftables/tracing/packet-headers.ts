/** Addresses and ports in the headers that trace messages carry. Pure. */
import { type IpAddress, ipFromBytes } from "../../../net/ip.ts";
import type { TracedHeaders } from "./trace-event.ts";

/** Ends of a packet. Ports are undefined where the protocol has none, or where the header was not sent. */
export interface PacketEnds {
  readonly source: IpAddress;
  readonly sourcePort: number | undefined;
  readonly destination: IpAddress;
  readonly destinationPort: number | undefined;
}

/** Offsets and length of addresses: RFC 791 §3.1, RFC 8200 §3. */
const ADDRESSES: Readonly<
  Record<number, { readonly source: number; readonly destination: number; readonly length: number }>
> = { 4: { source: 12, destination: 16, length: 4 }, 6: { source: 8, destination: 24, length: 16 } };

/** @param hasPorts whether the transport header begins with two ports: tcp, udp, sctp. Undefined when the header is cut. */
export function packetEnds({ network, transport }: TracedHeaders, hasPorts: boolean): PacketEnds | undefined {
  const at = ADDRESSES[(network[0] ?? 0) >> 4];
  if (at === undefined || network.length < at.destination + at.length) return undefined;
  const address = (offset: number): IpAddress => ipFromBytes(network.subarray(offset, offset + at.length));
  const ports = hasPorts && transport.length >= 4 ? new DataView(transport.buffer, transport.byteOffset) : undefined;
  return {
    source: address(at.source),
    sourcePort: ports?.getUint16(0),
    destination: address(at.destination),
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
