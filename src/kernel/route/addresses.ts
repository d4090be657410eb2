/**
 * The addresses of this network namespace, asked of rtnetlink: all of all interfaces, loopback and interfaces that are
 * down included, as node-port addresses need them (reference node.md §9).
 */
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { NETLINK_ROUTE } from "../netlink/constants.ts";
import { collectDump } from "../netlink/dump-retry.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { readAddress, writeAddressDump } from "./rtnetlink.ts";

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
  writeAddressDump(request, family);
  const all = await collectDump(socket, request, (reply) => readAddress(reply)?.address, { signal });
  // A kernel that was started without a family (ipv6.disable=1) answers with all that it has.
  return [...new Set(all.filter((address) => familyOf(address) === family))];
};
