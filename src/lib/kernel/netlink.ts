/**
 * `kube-proxy-ts/kernel/netlink`: netlink sockets of any family, and codecs for their messages. Linux only. A socket
 * belongs to the network namespace of the process; most requests that change something need CAP_NET_ADMIN.
 *
 * @experimental Names and shapes may change with any version before 1.0.
 *
 * @example
 * ```ts
 * import {
 *   attributes, MessageBuffer, NETLINK_ROUTE, NetlinkSocket, NLM_F_DUMP, zstring,
 * } from "kube-proxy-ts/kernel/netlink";
 *
 * // The names of all network devices: RTM_GETLINK (18), struct ifinfomsg (16 bytes), attribute IFLA_IFNAME (3).
 * const link = attributes({ name: [3, zstring] });
 * const request = new MessageBuffer();
 * request.put(18, NLM_F_DUMP, (out) => out.raw(new Uint8Array(16)));
 *
 * await using socket = NetlinkSocket.open(NETLINK_ROUTE);
 * const names: (string | undefined)[] = [];
 * await socket.request(request, ({ input, start, end }) => names.push(link.read(input, start + 16, end).name));
 * console.log(names.includes("lo"));
 * ```
 */
export {
  type Attributes,
  attributes,
  type ByteReader,
  binary,
  byteReader,
  type Codec,
  flag,
  forEachAttribute,
  i32be,
  list,
  marked,
  u8,
  u16be,
  u16host,
  u32be,
  u32host,
  u64be,
  u64host,
  type ValueOf,
  writeAttribute,
  zstring,
} from "../../kernel/netlink/attributes.ts";
export {
  NETLINK_GENERIC,
  NETLINK_NETFILTER,
  NETLINK_ROUTE,
  NLM_F_ACK,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_DUMP,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  NLM_F_REQUEST,
} from "../../kernel/netlink/constants.ts";
export { dumpWithRetry } from "../../kernel/netlink/dump-retry.ts";
export {
  errnoName,
  type FailedRequest,
  NetlinkError,
  type NetlinkErrorCode,
  type NetlinkErrorFacts,
} from "../../kernel/netlink/errors.ts";
export type { Reply, ReplyVisitor } from "../../kernel/netlink/frames.ts";
export { familyId, type GenericPayload, genericPayload, putGeneric } from "../../kernel/netlink/generic.ts";
export { MessageBuffer } from "../../kernel/netlink/message-buffer.ts";
export {
  beginBatch,
  endBatch,
  type NfnetlinkPayload,
  nfnetlinkPayload,
  putNfnetlink,
} from "../../kernel/netlink/nfnetlink.ts";
export {
  type BatchResult,
  type CallOptions,
  type NetlinkOptions,
  NetlinkSocket,
} from "../../kernel/netlink/socket.ts";
export { type SubscriptionOptions, subscribe } from "../../kernel/netlink/subscription.ts";
