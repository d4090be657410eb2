/** Names of IP sets by the numbers that rules have (linux/netfilter/ipset/ip_set.h). */
import { attributes, marked, u8, u16be, u32be, zstring } from "./netlink/attributes.ts";
import { NETLINK_NETFILTER, NLM_F_DUMP } from "./netlink/constants.ts";
import { answersTo } from "./netlink/dump-retry.ts";
import { NetlinkError } from "./netlink/errors.ts";
import type { MessageBuffer } from "./netlink/message-buffer.ts";
import { NFNL_SUBSYS_IPSET, NFPROTO_IPV4, putNfnetlink, readNfnetlink } from "./netlink/nfnetlink.ts";
import { NetlinkSocket } from "./netlink/socket.ts";

const IPSET_CMD_LIST = 7;
/** Lists definitions without members. */
const IPSET_FLAG_LIST_HEADER = 4;
/** The first protocol that tells the numbers: Linux 4.20. */
const PROTOCOL = 7;
const set = attributes({
  protocol: [1, u8],
  name: [2, zstring],
  flags: [6, marked(u32be)],
  index: [11, marked(u16be)],
});

/** Empty if the kernel does not tell them. Only to be asked where a rule has a set: the question loads ipset. */
export async function ipsetNames(): Promise<ReadonlyMap<number, string>> {
  await using socket = NetlinkSocket.open(NETLINK_NETFILTER);
  const write = (request: MessageBuffer): void =>
    putNfnetlink(request, NFNL_SUBSYS_IPSET, IPSET_CMD_LIST, NLM_F_DUMP, NFPROTO_IPV4, (out) =>
      set.write(out, { protocol: PROTOCOL, flags: IPSET_FLAG_LIST_HEADER }),
    );
  const named = await answersTo(socket, write, (reply): readonly [number, string] | undefined => {
    const { index, name } = readNfnetlink(reply, set);
    return index === undefined || name === undefined ? undefined : [index, name];
  }).catch((error: unknown) => {
    if (error instanceof NetlinkError) return [];
    throw error;
  });
  return new Map(named);
}
