/** Conntrack messages: the attributes of a flow, in the kernel's numbers (linux/netfilter/nfnetlink_conntrack.h). */

import type { Flow } from "../../net/flow.ts";
import { familyOf, type IpAddress, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, protocolOfNumber } from "../../net/protocol.ts";
import { attributes, type Codec, u8, u16be, u32be, u32host, u64be, type ValueOf } from "../netlink/attributes.ts";
import { NLM_F_DUMP } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { beginNfnetlink, NFNL_SUBSYS_CTNETLINK, nfnetlinkPayload } from "../netlink/nfnetlink.ts";
import type { Carried, FlowFilter, TrackedFlow } from "./conntrack.ts";

const IPCTNL_MSG_CT_GET = 1;
const IPCTNL_MSG_CT_DELETE = 2;
/** CTA_FILTER_ORIG_FLAGS: what of the original direction is compared. */
const COMPARED = { address: 1 << 1, protocol: 1 << 3, port: 1 << 5 } as const;
/** IPS_* of linux/netfilter/nf_conntrack_common.h. */
const SEEN_REPLY = 1 << 1;
const ASSURED = 1 << 2;
const DST_NAT = 1 << 5;

/** Names of `enum tcp_conntrack` and `enum sctp_conntrack`, as /proc/net/nf_conntrack has them. */
const TCP_STATES = "NONE SYN_SENT SYN_RECV ESTABLISHED FIN_WAIT CLOSE_WAIT LAST_ACK TIME_WAIT CLOSE SYN_SENT2".split(
  " ",
);
const SCTP_STATES =
  "NONE CLOSED COOKIE_WAIT COOKIE_ECHOED ESTABLISHED SHUTDOWN_SENT SHUTDOWN_RECD SHUTDOWN_ACK_SENT HEARTBEAT_SENT".split(
    " ",
  );

/** An address as text, without a copy of its bytes in between: each message has four. */
const address: Codec<IpAddress> = {
  nested: false,
  write: (out, value) => out.raw(ipBytes(value)),
  read: ({ bytes }, start, end) => ipFromBytes(bytes.subarray(start, end)),
};
const ip = attributes({
  sourceV4: [1, address],
  destinationV4: [2, address],
  sourceV6: [3, address],
  destinationV6: [4, address],
});
const protocol = attributes({ number: [1, u8], sourcePort: [2, u16be], destinationPort: [3, u16be] });
const tuple = attributes({ ip: [1, ip], protocol: [2, protocol] });
const counters = attributes({ packets: [1, u64be], bytes: [2, u64be] });
const state = attributes({ number: [1, u8] });
/** Unlike everything else here these are in host order. */
const filter = attributes({ originalFlags: [1, u32host], replyFlags: [2, u32host] });

/** A conntrack entry as far as it is of use here. */
export const conntrackEntry = attributes({
  original: [1, tuple],
  reply: [2, tuple],
  status: [3, u32be],
  states: [4, attributes({ tcp: [1, state], sctp: [3, state] })],
  timeout: [7, u32be],
  sent: [9, counters],
  received: [10, counters],
  id: [12, u32be],
  zone: [18, u16be],
  timestamp: [20, attributes({ startNs: [1, u64be] })],
  filter: [25, filter],
  statusMask: [26, u32be],
});
export type ConntrackEntry = ValueOf<typeof conntrackEntry>;
type Tuple = ValueOf<typeof tuple>;

/**
 * Asks for the entries of a family. By protocol, address and port kernels filter since 5.8, by status since 5.18; older ones send
 * every entry.
 */
export function writeDump(messages: MessageBuffer, family: number, wanted: FlowFilter): void {
  const { port, isTranslated = false } = wanted;
  // For IPv6 the kernel compares the wrong way round and leaves out what fits (ctnetlink_filter_match_tuple; seen with 6.18).
  const address = wanted.address !== undefined && familyOf(wanted.address) === "IPv4" ? wanted.address : undefined;
  const flags =
    (address === undefined ? 0 : COMPARED.address) |
    (wanted.protocol === undefined ? 0 : COMPARED.protocol) |
    (port === undefined ? 0 : COMPARED.port);
  const number = wanted.protocol && PROTOCOL_NUMBERS[wanted.protocol];
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET, NLM_F_DUMP, family);
  conntrackEntry.write(messages.out, {
    ...(flags !== 0 && {
      original: {
        ...(address !== undefined && { ip: destinationOf(address) }),
        ...(number !== undefined && { protocol: { number, ...(port !== undefined && { destinationPort: port }) } }),
      },
    }),
    ...(isTranslated && { status: DST_NAT }),
    ...(flags !== 0 && { filter: { originalFlags: flags, replyFlags: 0 } }),
    ...(isTranslated && { statusMask: DST_NAT }),
  });
  messages.end();
}

/** Asks for the one entry with the flow's original tuple. */
export function writeGet(messages: MessageBuffer, family: number, flow: Flow): void {
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET, 0, family);
  conntrackEntry.write(messages.out, { original: originalTuple(flow) });
  messages.end();
}

/** Deletes the entry with the flow's original tuple if it is still the one with this id. */
export function writeDelete(messages: MessageBuffer, family: number, flow: Flow, id: number): void {
  beginNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE, 0, family);
  conntrackEntry.write(messages.out, { original: originalTuple(flow), id });
  messages.end();
}

function originalTuple({ sourceIP, sourcePort, destinationIP, destinationPort, ...flow }: Flow): Tuple {
  const own = familyOf(sourceIP) === "IPv4" ? { sourceV4: sourceIP } : { sourceV6: sourceIP };
  return {
    ip: { ...own, ...destinationOf(destinationIP) },
    protocol: { number: PROTOCOL_NUMBERS[flow.protocol], sourcePort, destinationPort },
  };
}

function destinationOf(address: IpAddress) {
  return familyOf(address) === "IPv4" ? { destinationV4: address } : { destinationV6: address };
}

/** The flow that a message of conntrack is about; see {@link toFlow}. */
export function readFlow(reply: Reply): TrackedFlow | undefined {
  const { input, start, end } = nfnetlinkPayload(reply);
  return toFlow(conntrackEntry.read(input, start, end));
}

/**
 * The flow that an entry describes. Pure.
 *
 * @returns `undefined` for protocols that no Service has, for entries in a conntrack zone (other programs' business: service traffic
 * is tracked in the default zone), and for entries that lack an address.
 */
export function toFlow(entry: ConntrackEntry): TrackedFlow | undefined {
  const { original, reply, status, states, timeout, sent, received, id, timestamp } = entry;
  const known = protocolOfNumber(original?.protocol?.number);
  if (known === undefined || (entry.zone ?? 0) !== 0) return undefined;
  const source = original?.ip?.sourceV4 ?? original?.ip?.sourceV6;
  const destination = original?.ip?.destinationV4 ?? original?.ip?.destinationV6;
  const replySource = reply?.ip?.sourceV4 ?? reply?.ip?.sourceV6;
  const replyDestination = reply?.ip?.destinationV4 ?? reply?.ip?.destinationV6;
  if (source === undefined || destination === undefined) return undefined;
  if (replySource === undefined || replyDestination === undefined) return undefined;
  const stateName =
    states?.tcp?.number === undefined ? SCTP_STATES[states?.sctp?.number ?? -1] : TCP_STATES[states.tcp.number];
  return {
    protocol: known,
    sourceIP: source,
    sourcePort: original?.protocol?.sourcePort ?? 0,
    destinationIP: destination,
    destinationPort: original?.protocol?.destinationPort ?? 0,
    replySourceIP: replySource,
    replySourcePort: reply?.protocol?.sourcePort ?? 0,
    replyDestinationIP: replyDestination,
    replyDestinationPort: reply?.protocol?.destinationPort ?? 0,
    ...(id !== undefined && { id }),
    ...(status !== undefined && { isAnswered: (status & SEEN_REPLY) !== 0, isAssured: (status & ASSURED) !== 0 }),
    ...(stateName !== undefined && { state: stateName }),
    ...(timeout !== undefined && { timeoutSeconds: timeout }),
    ...(sent !== undefined && { sent: carried(sent) }),
    ...(received !== undefined && { received: carried(received) }),
    ...(timestamp?.startNs !== undefined && { startMs: Math.round(timestamp.startNs / 1e6) }),
  };
}

function carried({ packets = 0, bytes = 0 }: ValueOf<typeof counters>): Carried {
  return { packets, bytes };
}
