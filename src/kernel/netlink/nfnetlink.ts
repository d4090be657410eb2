/** The common header of all NETLINK_NETFILTER messages, and batch markers (reference nfnetlink.md §2–3). */
import type { IpFamily } from "../../net/ip.ts";
import { type ByteReader, u32be, writeAttribute } from "./attributes.ts";
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

/** Starts a message of a subsystem; write its attributes to `messages.out`, then call `messages.end()`. */
export function beginNfnetlink(
  messages: MessageBuffer,
  subsystem: number,
  message: number,
  flags: number,
  family: number,
  resourceId = 0,
): number {
  const index = messages.begin((subsystem << 8) | message, flags);
  messages.out.u8(family);
  messages.out.u8(0);
  messages.out.u16(resourceId);
  return index;
}

/** The marker that opens a batch of nf_tables messages. With `generation`, the batch fails if the ruleset has another generation. */
export function beginBatch(messages: MessageBuffer, generation?: number): void {
  beginNfnetlink(messages, 0, NFNL_MSG_BATCH_BEGIN, 0, NFPROTO_UNSPEC, NFNL_SUBSYS_NFTABLES);
  if (generation !== undefined) writeAttribute(messages.out, NFNL_BATCH_GENID, u32be, generation);
  messages.end();
}

/** The marker that commits a batch. Without it, the kernel only checks the batch. */
export function endBatch(messages: MessageBuffer): void {
  beginNfnetlink(messages, 0, NFNL_MSG_BATCH_END, 0, NFPROTO_UNSPEC, NFNL_SUBSYS_NFTABLES);
  messages.end();
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
