/** Counts the connections whose destination was translated, from one dump of the kernel's connection tracking table. */
import type { IpFamily } from "../../net/ip.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import { dumpWithRetry } from "../netlink/dump-retry.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { nfnetlinkPayload, nfprotoOf } from "../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { conntrackEntry, type ServiceFlow, toServiceFlow, writeTranslatedDump } from "./ctnetlink.ts";

/** A table with many flows comes in large datagrams. */
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/**
 * Reads the table of this process's network namespace once, and keeps none of it: 100,000 flows need no more memory than ten.
 *
 * @param begin called when the dump begins, and again when the kernel says that it was interrupted; gives what each flow is told.
 * @returns whether the last dump was complete. @throws NetlinkError when the kernel refuses (`EPERM`, no ctnetlink).
 */
export async function readTranslatedFlows(
  families: readonly IpFamily[],
  begin: (family: IpFamily) => (flow: ServiceFlow) => void,
): Promise<boolean> {
  await using socket = NetlinkSocket.open(NETLINK_NETFILTER, { receiveBufferBytes: RECEIVE_BUFFER_BYTES });
  let isComplete = true;
  for (const family of families) {
    const request = new MessageBuffer(128);
    writeTranslatedDump(request, nfprotoOf(family));
    const wasComplete = await dumpWithRetry(() => {
      const visit = begin(family);
      const onReply = (reply: Parameters<typeof nfnetlinkPayload>[0]): void => {
        const { input, start, end } = nfnetlinkPayload(reply);
        const flow = toServiceFlow(conntrackEntry.read(input, start, end));
        if (flow !== undefined) visit(flow);
      };
      return socket.dump(request, onReply, { isSlow: true });
    });
    isComplete &&= wasComplete;
  }
  return isComplete;
}
