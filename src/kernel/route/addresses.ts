/**
 * The addresses of this network namespace, from rtnetlink: those of all interfaces, including loopback and those that are
 * down, as node-port addresses require (reference node.md §9).
 */
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { NETLINK_ROUTE } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { readAddress, writeAddressDump } from "./rtnetlink.ts";

/** Reads the node's addresses; tests pass a fake. */
export type LocalAddresses = (family: IpFamily, signal?: AbortSignal) => Promise<readonly IpAddress[]>;

/**
 * All addresses of the family in the caller's network namespace, without duplicates, in the kernel's order. Opens a
 * socket and closes it again. Throws a NetlinkError if the kernel cannot be asked; an interrupted dump is repeated up to
 * 5 times, and then its last result is used.
 */
export const localAddresses: LocalAddresses = async (family, signal) => {
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  const write = (request: MessageBuffer): void => writeAddressDump(request, family);
  const all = await answersTo(socket, write, (reply) => readAddress(reply)?.address, { signal });
  // A kernel that was booted without a family (ipv6.disable=1) answers with the addresses of the other.
  return [...new Set(all.filter((address) => familyOf(address) === family))];
};
