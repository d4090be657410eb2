/** Parses received datagrams: their messages, and the contents of NLMSG_ERROR (reference nfnetlink.md §2, §11). */
import { attributes, type ByteReader, u32host, zstring } from "./attributes.ts";
import {
  HOST_IS_LITTLE_ENDIAN,
  NLA_TYPE_MASK,
  NLM_F_ACK_TLVS,
  NLM_F_CAPPED,
  NLMSG_DONE,
  NLMSG_HDRLEN,
  NLMSGERR_ATTR_MISS_TYPE,
  NLMSGERR_ATTR_MSG,
  NLMSGERR_ATTR_OFFS,
} from "./constants.ts";
import { errnoName, malformed, NetlinkError } from "./errors.ts";
import { align4, type MessageBuffer } from "./message-buffer.ts";

/** One received message. The object and its bytes are reused: valid only during the visitor's call. */
export interface Reply {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  /** In notifications, the socket that made the change; in answers, the one that asked. */
  readonly portId: number;
  /** The datagram that holds the message. */
  readonly input: ByteReader;
  /** Payload (after the netlink header): `[start, end)` of `input`. */
  readonly start: number;
  readonly end: number;
}

export type ReplyVisitor = (reply: Reply) => void;

/** Visits each message of the first `length` bytes. Throws `malformed`. */
export function forEachMessage(input: ByteReader, length: number, visit: ReplyVisitor): void {
  const reply = { type: 0, flags: 0, sequence: 0, portId: 0, input, start: 0, end: 0 };
  let offset = 0;
  while (offset + NLMSG_HDRLEN <= length) {
    const size = input.view.getUint32(offset, HOST_IS_LITTLE_ENDIAN);
    if (size < NLMSG_HDRLEN || offset + size > length) {
      throw malformed(
        `message length ${size} with ${length - offset} bytes left`,
        input.bytes.subarray(0, length),
        offset,
      );
    }
    reply.type = input.view.getUint16(offset + 4, HOST_IS_LITTLE_ENDIAN);
    reply.flags = input.view.getUint16(offset + 6, HOST_IS_LITTLE_ENDIAN);
    reply.sequence = input.view.getUint32(offset + 8, HOST_IS_LITTLE_ENDIAN);
    reply.portId = input.view.getUint32(offset + 12, HOST_IS_LITTLE_ENDIAN);
    reply.start = offset + NLMSG_HDRLEN;
    reply.end = offset + size;
    visit(reply);
    offset += align4(size);
  }
  if (offset < length) throw malformed("stray bytes after the messages", input.bytes.subarray(0, length), offset);
}

/** The status word of NLMSG_ERROR and NLMSG_DONE: 0, or a negative errno. */
export function statusOf(reply: Reply): number {
  return reply.end - reply.start >= 4 ? reply.input.view.getInt32(reply.start, HOST_IS_LITTLE_ENDIAN) : 0;
}

const extendedAck = attributes({
  message: [NLMSGERR_ATTR_MSG, zstring],
  offset: [NLMSGERR_ATTR_OFFS, u32host],
  missingType: [NLMSGERR_ATTR_MISS_TYPE, u32host],
});

/**
 * The error in an NLMSG_ERROR or NLMSG_DONE with a negative status.
 *
 * @param index the position in `sent` of the request that this answers.
 */
export function errorFromReply(reply: Reply, sent: MessageBuffer, index: number): NetlinkError {
  const errno = -statusOf(reply);
  const name = errnoName(errno);
  const ack = reply.flags & NLM_F_ACK_TLVS ? readExtendedAck(reply) : {};
  const type = sent.typeOf(index);
  const attribute = attributeAt(sent, index, ack.offset);
  const details = [
    ack.message,
    attribute === undefined ? undefined : `attribute ${attribute} at byte ${ack.offset}`,
    ack.missingType === undefined ? undefined : `attribute ${ack.missingType} is missing`,
  ].filter((part) => part !== undefined);
  const suffix = details.length === 0 ? "" : ` (${details.join("; ")})`;
  return new NetlinkError(name, `netlink: request ${index + 1} of ${sent.count}, type ${type}: ${name}${suffix}`, {
    errno,
    request: { index, type, sequence: reply.sequence },
    kernelMessage: ack.message,
    offset: ack.offset,
    attribute,
    missingAttribute: ack.missingType,
  });
}

function readExtendedAck(reply: Reply): ReturnType<typeof extendedAck.read> {
  // NLMSG_DONE:  status · attributes
  // NLMSG_ERROR: status · the request's header · the request's payload unless capped · attributes
  if (reply.type === NLMSG_DONE) return extendedAck.read(reply.input, reply.start + 4, reply.end);
  const header = reply.start + 4;
  if (header + NLMSG_HDRLEN > reply.end) return {};
  const echoed = reply.flags & NLM_F_CAPPED ? NLMSG_HDRLEN : reply.input.view.getUint32(header, HOST_IS_LITTLE_ENDIAN);
  const start = header + align4(echoed);
  if (start > reply.end) return {};
  return extendedAck.read(reply.input, start, reply.end);
}

function attributeAt(sent: MessageBuffer, index: number, offset: number | undefined): number | undefined {
  if (offset === undefined || offset < NLMSG_HDRLEN) return undefined;
  const at = sent.startOf(index) + offset + 2;
  if (at + 2 > sent.startOf(index + 1)) return undefined;
  return sent.bytes.readUInt16LE(at) & NLA_TYPE_MASK;
}
