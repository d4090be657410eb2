/** Conntrack messages: the attributes of a flow, in the kernel's numbers (linux/netfilter/nfnetlink_conntrack.h). */

import { type IpAddress, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, type Protocol, protocolOfNumber } from "../../net/protocol.ts";
import type { UdpFlow } from "../../net/udp-flow.ts";
import { attributes, binary, u8, u16be, u32be, u32host, type ValueOf } from "../netlink/attributes.ts";
import { NLM_F_DUMP } from "../netlink/constants.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { beginNfnetlink, NFNL_SUBSYS_CTNETLINK } from "../netlink/nfnetlink.ts";

const IPCTNL_MSG_CT_GET = 1;
const IPCTNL_MSG_CT_DELETE = 2;
/** CTA_FILTER_ORIG_FLAGS: compare the protocol number of the original direction. */
const CTA_FILTER_F_PROTO_NUM = 1 << 3;
/** IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h: the destination was translated. */
const IPS_DST_NAT = 1 << 5;

const ip = attributes({
  sourceV4: [1, binary],
  destinationV4: [2, binary],
  sourceV6: [3, binary],
  destinationV6: [4, binary],
});
const protocol = attributes({ number: [1, u8], sourcePort: [2, u16be], destinationPort: [3, u16be] });
const tuple = attributes({ ip: [1, ip], protocol: [2, protocol] });
/** Unlike everything else here these are in host order. */
const filter = attributes({ originalFlags: [1, u32host], replyFlags: [2, u32host] });

/** A conntrack entry as far as it is of use here. */
export const conntrackEntry = attributes({
  original: [1, tuple],
  reply: [2, tuple],
  status: [3, u32be],
  id: [12, u32be],
  zone: [18, u16be],
  filter: [25, filter],
  statusMask: [26, u32be],
});
export type ConntrackEntry = ValueOf<typeof conntrackEntry>;
type Tuple = ValueOf<typeof tuple>;

/**
 * Asks for all entries of a family. The UDP filter is the kernel's (5.8 and later); older kernels ignore it and send
 * every entry.
 */
export function writeUdpDump(messages: MessageBuffer, family: number): void {
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET, NLM_F_DUMP, family);
  conntrackEntry.write(messages.out, {
    original: { protocol: { number: PROTOCOL_NUMBERS.UDP } },
    filter: { originalFlags: CTA_FILTER_F_PROTO_NUM, replyFlags: 0 },
  });
  messages.end();
}

/**
 * Asks for the entries of a family whose destination was translated. The filter by status is the kernel's (5.18 and later); older
 * kernels ignore it and send every entry.
 */
export function writeTranslatedDump(messages: MessageBuffer, family: number): void {
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET, NLM_F_DUMP, family);
  conntrackEntry.write(messages.out, { status: IPS_DST_NAT, statusMask: IPS_DST_NAT });
  messages.end();
}

/** Asks for the one entry with the flow's original tuple. */
export function writeGet(messages: MessageBuffer, family: number, flow: UdpFlow): void {
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET, 0, family);
  conntrackEntry.write(messages.out, { original: originalTuple(flow) });
  messages.end();
}

/** Deletes the entry with the flow's original tuple if it is still the one with this id. */
export function writeDelete(messages: MessageBuffer, family: number, flow: UdpFlow, id: number): void {
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE, 0, family);
  conntrackEntry.write(messages.out, { original: originalTuple(flow), id });
  messages.end();
}

function originalTuple(flow: UdpFlow): Tuple {
  const source = ipBytes(flow.sourceIP);
  const destination = ipBytes(flow.destinationIP);
  return {
    ip:
      source.length === 4
        ? { sourceV4: source, destinationV4: destination }
        : { sourceV6: source, destinationV6: destination },
    protocol: { number: PROTOCOL_NUMBERS.UDP, sourcePort: flow.sourcePort, destinationPort: flow.destinationPort },
  };
}

/**
 * The UDP flow that an entry describes. Pure.
 *
 * @returns `undefined` for other protocols, for entries in a conntrack zone (other programs' business: service traffic
 * is tracked in the default zone), and for entries that lack an address.
 */
export function toUdpFlow(entry: ConntrackEntry): UdpFlow | undefined {
  const { original, reply } = entry;
  if (original?.protocol?.number !== PROTOCOL_NUMBERS.UDP || (entry.zone ?? 0) !== 0) return undefined;
  const source = original.ip?.sourceV4 ?? original.ip?.sourceV6;
  const destination = original.ip?.destinationV4 ?? original.ip?.destinationV6;
  const replySource = reply?.ip?.sourceV4 ?? reply?.ip?.sourceV6;
  const replyDestination = reply?.ip?.destinationV4 ?? reply?.ip?.destinationV6;
  if (!isAddress(source) || !isAddress(destination) || !isAddress(replySource) || !isAddress(replyDestination)) {
    return undefined;
  }
  return {
    sourceIP: ipFromBytes(source),
    sourcePort: original.protocol.sourcePort ?? 0,
    destinationIP: ipFromBytes(destination),
    destinationPort: original.protocol.destinationPort ?? 0,
    replySourceIP: ipFromBytes(replySource),
    replySourcePort: reply?.protocol?.sourcePort ?? 0,
    replyDestinationIP: ipFromBytes(replyDestination),
    replyDestinationPort: reply?.protocol?.destinationPort ?? 0,
  };
}

/** A connection to a service, as conntrack knows it: what was asked for, and who answers. */
export interface ServiceFlow {
  readonly protocol: Protocol;
  readonly address: IpAddress;
  readonly port: number;
  readonly endpointIP: IpAddress;
  readonly endpointPort: number;
}

/** The connection to a service that an entry describes; undefined where nothing was translated, as for {@link toUdpFlow}. Pure. */
export function toServiceFlow({ original, reply, zone, status }: ConntrackEntry): ServiceFlow | undefined {
  const known = protocolOfNumber(original?.protocol?.number);
  if (known === undefined || (zone ?? 0) !== 0 || ((status ?? 0) & IPS_DST_NAT) === 0) return undefined;
  const asked = original?.ip?.destinationV4 ?? original?.ip?.destinationV6;
  const answering = reply?.ip?.sourceV4 ?? reply?.ip?.sourceV6;
  if (!isAddress(asked) || !isAddress(answering)) return undefined;
  return {
    protocol: known,
    address: ipFromBytes(asked),
    port: original?.protocol?.destinationPort ?? 0,
    endpointIP: ipFromBytes(answering),
    endpointPort: reply?.protocol?.sourcePort ?? 0,
  };
}

function isAddress(bytes: Uint8Array | undefined): bytes is Uint8Array {
  return bytes !== undefined && (bytes.length === 4 || bytes.length === 16);
}

/** Whether two flows agree in both directions. Pure. */
export function isSameFlow(a: UdpFlow, b: UdpFlow): boolean {
  return (
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
