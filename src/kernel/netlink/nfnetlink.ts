/** The common header of all NETLINK_NETFILTER messages, and batch markers (reference nfnetlink.md §2–3). */
import type { IpFamily } from "../../net/ip.ts";
import { type ByteReader, type Codec, u32be, writeAttribute } from "./attributes.ts";
import { NLMSG_HDRLEN } from "./constants.ts";
import { malformed } from "./errors.ts";
import type { Reply } from "./frames.ts";
import type { MessageBuffer } from "./message-buffer.ts";

export const NFNL_SUBSYS_CTNETLINK = 1;
export const NFNL_SUBSYS_IPSET = 6;
export const NFNL_SUBSYS_ACCT = 7;
export const NFNL_SUBSYS_NFTABLES = 10;

export const NFNL_MSG_BATCH_BEGIN = 0x10;
export const NFNL_MSG_BATCH_END = 0x11;
const NFNL_BATCH_GENID = 1;

export const NFPROTO_UNSPEC = 0;
export const NFPROTO_IPV4 = 2;
export const NFPROTO_IPV6 = 10;

const NFGENMSG_BYTES = 4;
/** The size of the headers before the attributes of a message. */
export const NFNL_HEADERS_BYTES = NLMSG_HDRLEN + NFGENMSG_BYTES;

/** The family for nfnetlink's header. */
export function nfprotoOf(family: IpFamily): number {
  return family === "IPv4" ? NFPROTO_IPV4 : NFPROTO_IPV6;
}

/** Appends a message of a subsystem. @param write writes its attributes. @default none */
export function putNfnetlink(
  messages: MessageBuffer,
  subsystem: number,
  message: number,
  flags: number,
  family: number,
  write: (out: MessageBuffer) => void = () => {},
  resourceId = 0,
): void {
  messages.fill(openNfnetlink(messages, (subsystem << 8) | message, flags, family, resourceId), write);
}

/** Starts a message, which {@link MessageBuffer.closeMessage} ends. @param type includes the subsystem. @returns its start. */
export function openNfnetlink(
  messages: MessageBuffer,
  type: number,
  flags: number,
  family: number,
  resourceId = 0,
): number {
  const start = messages.openMessage(type, flags);
  // u8 family · u8 version (0) · u16 resource
  messages.u32(family * 2 ** 24 + resourceId);
  return start;
}

/** The marker that opens a batch of nf_tables messages. With `generation`, the batch fails if the ruleset has another generation. */
export function beginBatch(messages: MessageBuffer, generation?: number): void {
  const start = openNfnetlink(messages, NFNL_MSG_BATCH_BEGIN, 0, NFPROTO_UNSPEC, NFNL_SUBSYS_NFTABLES);
  if (generation !== undefined) writeAttribute(messages, NFNL_BATCH_GENID, u32be, generation);
  messages.closeMessage(start);
}

/** The marker that commits a batch. Without it, the kernel only checks the batch. */
export function endBatch(messages: MessageBuffer): void {
  messages.closeMessage(openNfnetlink(messages, NFNL_MSG_BATCH_END, 0, NFPROTO_UNSPEC, NFNL_SUBSYS_NFTABLES));
}

/** A received message: family, generation (low 16 bits) and attributes. */
export interface NfnetlinkPayload {
  readonly family: number;
  readonly resourceId: number;
  readonly input: ByteReader;
  /** Attributes: `[start, end)` of `input`. */
  readonly start: number;
  readonly end: number;
}

/** The attributes of a received message. Throws `malformed`. */
export function readNfnetlink<T>(reply: Reply, codec: Codec<T>): T {
  const { input, start, end } = nfnetlinkPayload(reply);
  return codec.read(input, start, end);
}

/** Reads the header that follows the netlink header. Throws `malformed`. */
export function nfnetlinkPayload(reply: Reply): NfnetlinkPayload {
  if (reply.end - reply.start < NFGENMSG_BYTES) throw malformed("no nfgenmsg", reply.input.bytes, reply.start);
  return {
    family: reply.input.view.getUint8(reply.start),
    resourceId: reply.input.view.getUint16(reply.start + 2),
    input: reply.input,
    start: reply.start + NFGENMSG_BYTES,
    end: reply.end,
  };
}
