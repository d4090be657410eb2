/**
 * The addresses of this network namespace, asked of rtnetlink: all of all interfaces, loopback and interfaces that are
 * down included, as node-port addresses need them (reference core.md §9).
 */
import { type IpAddress, type IpFamily, ipFromBytes } from "../../net/ip.ts";
import { attributes, binary } from "../netlink/attributes.ts";
import { NETLINK_ROUTE, NLM_F_DUMP } from "../netlink/constants.ts";
import { dumpWithRetry } from "../netlink/dump-retry.ts";
import { malformed } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";

const RTM_NEWADDR = 20;
const RTM_GETADDR = 22;
const AF_INET = 2;
const AF_INET6 = 10;
/** u8 family · u8 prefix length · u8 flags · u8 scope · u32 interface index */
const IFADDRMSG_BYTES = 8;

const interfaceAddress = attributes({ address: [1, binary], local: [2, binary] });

/** Reads addresses; also implemented by tests as a plain function. */
export type LocalAddresses = (family: IpFamily, signal?: AbortSignal) => Promise<readonly IpAddress[]>;

/**
 * Every address of the family in the caller's network namespace, each once, in the kernel's order. Opens a socket and
 * closes it again. Throws a NetlinkError when the kernel cannot be asked; an interrupted dump is repeated up to 5 times
 * and then believed.
 */
export const localAddresses: LocalAddresses = async (family, signal) => {
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  const request = new MessageBuffer(64);
  request.begin(RTM_GETADDR, NLM_F_DUMP);
  request.out.u8(family === "IPv4" ? AF_INET : AF_INET6);
  request.out.raw(new Uint8Array(IFADDRMSG_BYTES - 1));
  request.end();
  let found = new Set<IpAddress>();
  await dumpWithRetry(() => {
    found = new Set();
    return socket.dump(request, (reply) => collect(reply, found), { signal });
  });
  return [...found];
};

function collect(reply: Reply, found: Set<IpAddress>): void {
  if (reply.type !== RTM_NEWADDR) return;
  if (reply.end - reply.start < IFADDRMSG_BYTES) throw malformed("no ifaddrmsg", reply.input.bytes, reply.start);
  const { address, local } = interfaceAddress.read(reply.input, reply.start + IFADDRMSG_BYTES, reply.end);
  // On point-to-point links IFA_ADDRESS is the peer and IFA_LOCAL is ours.
  const own = local ?? address;
  if (own !== undefined && (own.length === 4 || own.length === 16)) found.add(ipFromBytes(own));
}
