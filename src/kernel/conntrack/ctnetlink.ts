/** Conntrack messages and the attributes of a flow (linux/netfilter/nfnetlink_conntrack.h). */

import type { Flow } from "../../net/flow.ts";
import { familyOf, type IpAddress, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, protocolOfNumber } from "../../net/protocol.ts";
import {
  attributes,
  type ByteReader,
  type Codec,
  endOfAttribute,
  numberAt,
  placeAttributes,
  u8,
  u16be,
  u32be,
  u32host,
  type ValueOf,
} from "../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN, NLA_F_NESTED, NLM_F_DUMP } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFNL_SUBSYS_CTNETLINK, nfnetlinkPayload, putNfnetlink } from "../netlink/nfnetlink.ts";
import type { Carried, FlowFilter, TrackedFlow } from "./conntrack.ts";

const IPCTNL_MSG_CT_GET = 1;
/** The low byte of the message type. */
export const IPCTNL_MSG_CT_DELETE = 2;
/** CTA_FILTER_ORIG_FLAGS: which fields of the original direction the kernel compares. */
const COMPARED = { address: 1 << 1, protocol: 1 << 3, port: 1 << 5 } as const;
/** IPS_* of linux/netfilter/nf_conntrack_common.h. */
const SEEN_REPLY = 1 << 1;
const ASSURED = 1 << 2;
const DST_NAT = 1 << 5;

/** Names of `enum tcp_conntrack` and `enum sctp_conntrack`, as in /proc/net/nf_conntrack. */
const TCP_STATES = "NONE SYN_SENT SYN_RECV ESTABLISHED FIN_WAIT CLOSE_WAIT LAST_ACK TIME_WAIT CLOSE SYN_SENT2".split(
  " ",
);
const SCTP_STATES =
  "NONE CLOSED COOKIE_WAIT COOKIE_ECHOED ESTABLISHED SHUTDOWN_SENT SHUTDOWN_RECD SHUTDOWN_ACK_SENT HEARTBEAT_SENT".split(
    " ",
  );
/** All possible states of a flow. */
export const FLOW_STATES: readonly string[] = [...TCP_STATES, ...SCTP_STATES];

const address: Codec<IpAddress> = {
  nested: false,
  write: (out, value) => out.raw(ipBytes(value)),
  read: ({ bytes }, start, end) => ipFromBytes(bytes.subarray(start, end)),
};
/** Attributes of an entry (`enum ctattr_type`), and those in its nests. */
const [ORIGINAL, REPLY, STATUS, STATES, SENT, RECEIVED, ID, ZONE, TIMESTAMP] = [1, 2, 3, 4, 9, 10, 12, 18, 20] as const;
const [IP, PROTOCOL] = [1, 2] as const;
const [SOURCE_V4, DESTINATION_V4, SOURCE_V6, DESTINATION_V6] = [1, 2, 3, 4] as const;
const [NUMBER, SOURCE_PORT, DESTINATION_PORT] = [1, 2, 3] as const;
const [TCP_STATE, SCTP_STATE] = [1, 3] as const;
const [STATE, PACKETS, BYTES, START_NS] = [1, 1, 2, 1] as const;

const ip = attributes({
  sourceV4: [SOURCE_V4, address],
  destinationV4: [DESTINATION_V4, address],
  sourceV6: [SOURCE_V6, address],
  destinationV6: [DESTINATION_V6, address],
});
const ports = { sourcePort: [SOURCE_PORT, u16be], destinationPort: [DESTINATION_PORT, u16be] } as const;
const tuple = attributes({ ip: [IP, ip], protocol: [PROTOCOL, attributes({ number: [NUMBER, u8], ...ports })] });
/** These are in host order, unlike everything else here. */
const filter = attributes({ originalFlags: [1, u32host], replyFlags: [2, u32host] });

/** The attributes of a request. */
const conntrackEntry = attributes({
  original: [ORIGINAL, tuple],
  status: [STATUS, u32be],
  id: [ID, u32be],
  filter: [25, filter],
  statusMask: [26, u32be],
});
function put(
  messages: MessageBuffer,
  message: number,
  flags: number,
  family: number,
  value: ValueOf<typeof conntrackEntry>,
): void {
  putNfnetlink(messages, NFNL_SUBSYS_CTNETLINK, message, flags, family, (out) => conntrackEntry.write(out, value));
}

/**
 * Requests the entries of a family. Kernels filter by protocol, address and port since 5.8, and by status since 5.18; older ones
 * send every entry.
 */
export function writeDump(messages: MessageBuffer, family: number, wanted: FlowFilter): void {
  const { port, isTranslated = false, isUnanswered = false } = wanted;
  // For IPv6 addresses, the kernel's comparison is inverted and drops the matches (ctnetlink_filter_match_tuple; seen with 6.18).
  const address = wanted.address !== undefined && familyOf(wanted.address) === "IPv4" ? wanted.address : undefined;
  const flags =
    (address === undefined ? 0 : COMPARED.address) |
    (wanted.protocol === undefined ? 0 : COMPARED.protocol) |
    (port === undefined ? 0 : COMPARED.port);
  const status = isTranslated ? DST_NAT : 0;
  const statusMask = status | (isUnanswered ? SEEN_REPLY : 0);
  const number = wanted.protocol && PROTOCOL_NUMBERS[wanted.protocol];
  put(messages, IPCTNL_MSG_CT_GET, NLM_F_DUMP, family, {
    ...(flags !== 0 && {
      original: {
        ...(address !== undefined && { ip: destinationOf(address) }),
        ...(number !== undefined && { protocol: { number, ...(port !== undefined && { destinationPort: port }) } }),
      },
    }),
    ...(statusMask !== 0 && { status }),
    ...(flags !== 0 && { filter: { originalFlags: flags, replyFlags: 0 } }),
    ...(statusMask !== 0 && { statusMask }),
  });
}

/** Requests the one entry with the flow's original tuple. */
export function writeGet(messages: MessageBuffer, family: number, flow: Flow): void {
  put(messages, IPCTNL_MSG_CT_GET, 0, family, { original: originalTuple(flow) });
}

/** Deletes the entry with the flow's original tuple if it still has this id. */
export function writeDelete(messages: MessageBuffer, family: number, flow: Flow, id: number): void {
  put(messages, IPCTNL_MSG_CT_DELETE, 0, family, { original: originalTuple(flow), id });
}

function originalTuple({ sourceIP, sourcePort, destinationIP, destinationPort, ...flow }: Flow): ValueOf<typeof tuple> {
  const own = familyOf(sourceIP) === "IPv4" ? { sourceV4: sourceIP } : { sourceV6: sourceIP };
  return {
    ip: { ...own, ...destinationOf(destinationIP) },
    protocol: { number: PROTOCOL_NUMBERS[flow.protocol], sourcePort, destinationPort },
  };
}

function destinationOf(address: IpAddress) {
  return familyOf(address) === "IPv4" ? { destinationV4: address } : { destinationV6: address };
}

/** Scratch tables for {@link placeAttributes}: where attributes begin in the current message, and in a nest of it. */
const entry = new Int32Array(TIMESTAMP + 1);
const nest = new Int32Array(DESTINATION_V6 + 1);
const NOWHERE = new Int32Array(nest.length);

function openNest(input: ByteReader, at: number | undefined, places = nest): Int32Array {
  if (at === undefined || at === 0) return NOWHERE;
  placeAttributes(input, at, endOfAttribute(input, at), places);
  return places;
}

/**
 * Reads the flow of a conntrack message in place: a busy node sends tens of thousands per second. Throws `malformed`.
 *
 * @returns `undefined` for protocols that no Service has, for entries in a conntrack zone (Service traffic is tracked in the default
 * zone; others belong to other programs), and for entries that lack an address.
 */
export function readFlow(reply: Reply): TrackedFlow | undefined {
  const { input, start, end } = nfnetlinkPayload(reply);
  placeAttributes(input, start, end, entry);
  if ((numberAt(input, entry[ZONE]) ?? 0) !== 0) return undefined;
  const original = readTuple(input, entry[ORIGINAL]);
  const answering = original && readTuple(input, entry[REPLY]);
  const known = protocolOfNumber(original?.number);
  if (original === undefined || answering === undefined || known === undefined) return undefined;
  const status = numberAt(input, entry[STATUS]);
  const startNs = numberAt(input, openNest(input, entry[TIMESTAMP])[START_NS]);
  return {
    protocol: known,
    sourceIP: original.source,
    sourcePort: original.sourcePort,
    destinationIP: original.destination,
    destinationPort: original.destinationPort,
    replySourceIP: answering.source,
    replySourcePort: answering.sourcePort,
    replyDestinationIP: answering.destination,
    replyDestinationPort: answering.destinationPort,
    id: numberAt(input, entry[ID]),
    isAnswered: status === undefined ? undefined : (status & SEEN_REPLY) !== 0,
    isAssured: status === undefined ? undefined : (status & ASSURED) !== 0,
    state: stateIn(input, entry[STATES]),
    sent: carriedIn(input, entry[SENT]),
    received: carriedIn(input, entry[RECEIVED]),
    startMs: startNs === undefined ? undefined : Math.round(startNs / 1e6),
  };
}

interface Ends {
  readonly number: number | undefined;
  readonly source: IpAddress;
  readonly sourcePort: number;
  readonly destination: IpAddress;
  readonly destinationPort: number;
}

const tupleParts = new Int32Array(PROTOCOL + 1);

/** Length and type of an attribute as one host-order word. */
function head(type: number, length: number): number {
  return HOST_IS_LITTLE_ENDIAN ? ((type << 16) | length) >>> 0 : (length << 16) | type;
}
const [IP_HEAD, PROTOCOL_HEAD, NUMBER_HEAD] = [
  head(IP | NLA_F_NESTED, 20),
  head(PROTOCOL | NLA_F_NESTED, 28),
  head(NUMBER, 5),
];
const [SOURCE_HEAD, DESTINATION_HEAD] = [head(SOURCE_V4, 8), head(DESTINATION_V4, 8)];
const [SOURCE_PORT_HEAD, DESTINATION_PORT_HEAD] = [head(SOURCE_PORT, 6), head(DESTINATION_PORT, 6)];
const PLAIN_TUPLE_BYTES = 48;

/** Whether an IPv4 tuple with ports begins here, in the kernel's usual order: then {@link readTuple} can read its values at fixed offsets. */
function isPlainTuple({ view }: ByteReader, at: number): boolean {
  return (
    at + PLAIN_TUPLE_BYTES <= view.byteLength &&
    view.getUint32(at, HOST_IS_LITTLE_ENDIAN) === IP_HEAD &&
    view.getUint32(at + 4, HOST_IS_LITTLE_ENDIAN) === SOURCE_HEAD &&
    view.getUint32(at + 12, HOST_IS_LITTLE_ENDIAN) === DESTINATION_HEAD &&
    view.getUint32(at + 20, HOST_IS_LITTLE_ENDIAN) === PROTOCOL_HEAD &&
    view.getUint32(at + 24, HOST_IS_LITTLE_ENDIAN) === NUMBER_HEAD &&
    view.getUint32(at + 32, HOST_IS_LITTLE_ENDIAN) === SOURCE_PORT_HEAD &&
    view.getUint32(at + 40, HOST_IS_LITTLE_ENDIAN) === DESTINATION_PORT_HEAD
  );
}

function readTuple(input: ByteReader, at: number | undefined): Ends | undefined {
  if (at !== undefined && at !== 0 && isPlainTuple(input, at)) {
    const { view } = input;
    return {
      number: view.getUint8(at + 28),
      source: knownAddress(input, at + 8),
      sourcePort: view.getUint16(at + 36),
      destination: knownAddress(input, at + 16),
      destinationPort: view.getUint16(at + 44),
    };
  }
  const parts = openNest(input, at, tupleParts);
  const addresses = openNest(input, parts[IP]);
  const source = addressAt(input, addresses[SOURCE_V4] || addresses[SOURCE_V6]);
  const destination = addressAt(input, addresses[DESTINATION_V4] || addresses[DESTINATION_V6]);
  if (source === undefined || destination === undefined) return undefined;
  const ports = openNest(input, parts[PROTOCOL]);
  const sourcePort = numberAt(input, ports[SOURCE_PORT]) ?? 0;
  const destinationPort = numberAt(input, ports[DESTINATION_PORT]) ?? 0;
  return { number: numberAt(input, ports[NUMBER]), source, sourcePort, destination, destinationPort };
}

/** Caches the text of IPv4 addresses by their 32 bits: a few hosts have most connections. */
const known4 = new Map<number, IpAddress>();
const MOST_KNOWN = 10_000;

function addressAt(input: ByteReader, at: number | undefined): IpAddress | undefined {
  if (at === undefined || at === 0) return undefined;
  const until = endOfAttribute(input, at);
  return until - at === 4 ? knownAddress(input, at) : ipFromBytes(input.bytes.subarray(at, until));
}

/** The text of an IPv4 address, from the cache if possible. */
function knownAddress(input: ByteReader, at: number): IpAddress {
  const word = input.view.getInt32(at);
  let text = known4.get(word);
  if (text === undefined) {
    if (known4.size >= MOST_KNOWN) known4.clear();
    text = ipFromBytes(input.bytes.subarray(at, at + 4));
    known4.set(word, text);
  }
  return text;
}

/** The kernel's name of the state. */
function stateIn(input: ByteReader, at: number | undefined): string | undefined {
  if (!at) return undefined;
  const states = openNest(input, at);
  const [ofTcp, ofSctp] = [states[TCP_STATE], states[SCTP_STATE]];
  const number = numberAt(input, openNest(input, ofTcp || ofSctp)[STATE]);
  return number === undefined ? undefined : (ofTcp ? TCP_STATES : SCTP_STATES)[number];
}

function carriedIn(input: ByteReader, at: number | undefined): Carried | undefined {
  const counters = openNest(input, at);
  if (counters === NOWHERE) return undefined;
  return { packets: numberAt(input, counters[PACKETS]) ?? 0, bytes: numberAt(input, counters[BYTES]) ?? 0 };
}
