/** The kernel's connection tracking table over ctnetlink (reference sync.md §13.2). */
import type { UdpFlow } from "../../net/udp-flow.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import { dumpWithRetry } from "../netlink/dump-retry.ts";
import { isNotFound } from "../netlink/errors.ts";
import type { ReplyVisitor } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { nfnetlinkPayload, nfprotoOf } from "../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import type { ConntrackTable } from "./conntrack.ts";
import {
  type ConntrackEntry,
  conntrackEntry,
  isSameFlow,
  toUdpFlow,
  writeDelete,
  writeGet,
  writeUdpDump,
} from "./ctnetlink.ts";

/** A table with many UDP flows comes in large datagrams. */
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/** The table of the network namespace in which the socket was opened. */
export interface NetlinkConntrack extends ConntrackTable, AsyncDisposable {
  close(): Promise<void>;
}

/**
 * Opens the table of this process's network namespace; the kernel loads its conntrack module when it is first asked.
 * Methods throw a NetlinkError when the kernel refuses (`EPERM`, or `EINVAL`/`EOPNOTSUPP` without ctnetlink).
 */
export function openConntrack(): NetlinkConntrack {
  const socket = NetlinkSocket.open(NETLINK_NETFILTER, { receiveBufferBytes: RECEIVE_BUFFER_BYTES });
  return {
    async forEachUdpFlow(family, visit) {
      const request = new MessageBuffer(128);
      writeUdpDump(request, nfprotoOf(family));
      let flows: UdpFlow[] = [];
      const collect = onEntry((entry) => {
        const flow = toUdpFlow(entry);
        if (flow !== undefined) flows.push(flow);
      });
      await dumpWithRetry(() => {
        flows = [];
        // Even an empty table takes the kernel 10 ms here: it walks a quarter of a million hash buckets.
        return socket.dump(request, collect, { isSlow: true });
      });
      for (const flow of flows) visit(flow);
    },

    async deleteUdpFlow(family, flow) {
      const request = new MessageBuffer(256);
      writeGet(request, nfprotoOf(family), flow);
      let id: number | undefined;
      const find = onEntry((entry) => {
        const found = toUdpFlow(entry);
        if (found !== undefined && isSameFlow(found, flow)) id = entry.id;
      });
      try {
        await socket.request(request, find);
        // The same original tuple with another reply is a new flow, which may well be right.
        if (id === undefined) return false;
        request.reset();
        writeDelete(request, nfprotoOf(family), flow, id);
        await socket.request(request);
        return true;
      } catch (error) {
        if (isNotFound(error)) return false;
        throw error;
      }
    },

    close: () => socket.close(),
    [Symbol.asyncDispose]: () => socket.close(),
  };
}

function onEntry(visit: (entry: ConntrackEntry) => void): ReplyVisitor {
  return (reply) => {
    const { input, start, end } = nfnetlinkPayload(reply);
    visit(conntrackEntry.read(input, start, end));
  };
}
