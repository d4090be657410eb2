/** The kernel's connection tracking table over ctnetlink (reference sync.md §13.2). */

import { setTimeout as sleep } from "node:timers/promises";
import { isSameFlow, isTranslated } from "../../net/flow.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import { answersTo, dumpWithRetry } from "../netlink/dump-retry.ts";
import { isNotFound } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { nfprotoOf } from "../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { subscribe } from "../netlink/subscription.ts";
import type { ConntrackTable, FlowFilter, TrackedFlow } from "./conntrack.ts";
import { IPCTNL_MSG_CT_DELETE, readFlow, writeDelete, writeDump, writeGet } from "./ctnetlink.ts";
import { readStatistics } from "./statistics.ts";

/** The kernel dumps a table with many flows in large datagrams. */
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/** The table of the network namespace in which the socket was opened. */
export interface NetlinkConntrack extends Required<ConntrackTable>, AsyncDisposable {
  close(): Promise<void>;
}

/**
 * Opens the table of this process's network namespace; the kernel loads its conntrack module on the first request.
 * Methods throw a NetlinkError if the kernel rejects a request (`EPERM`, or `EINVAL`/`EOPNOTSUPP` without ctnetlink).
 */
export function openConntrack(): NetlinkConntrack {
  const open = () => NetlinkSocket.open(NETLINK_NETFILTER, { receiveBufferBytes: RECEIVE_BUFFER_BYTES });
  const socket = open();
  // A separate socket: with many flows a dump takes seconds, and nothing else should wait for it.
  let dumping: NetlinkSocket | undefined;
  return {
    async readFlows(family, filter, begin) {
      dumping ??= open();
      const socket = dumping;
      const request = new MessageBuffer(128);
      writeDump(request, nfprotoOf(family), filter);
      return await dumpWithRetry(() => {
        const visit = begin();
        const onReply = (reply: Reply): void => {
          const flow = readFlow(reply);
          if (flow !== undefined && passes(flow, filter)) visit(flow);
        };
        // Even for an empty table the kernel needs 10 ms: it walks a quarter of a million hash buckets.
        return socket.dump(request, onReply, { isSlow: true });
      });
    },

    async deleteFlow(family, flow) {
      const nfproto = nfprotoOf(family);
      try {
        const [found] = await answersTo(socket, (request) => writeGet(request, nfproto, flow), readFlow);
        const id = found !== undefined && isSameFlow(found, flow) ? found.id : undefined;
        // The same original tuple with another reply tuple is a new flow, which may be correct.
        if (id === undefined) return false;
        await answersTo(socket, (request) => writeDelete(request, nfproto, flow, id));
        return true;
      } catch (error) {
        if (isNotFound(error)) return false;
        throw error;
      }
    },

    statistics: () => readStatistics(socket),

    close,
    [Symbol.asyncDispose]: close,
  };

  async function close(): Promise<void> {
    await Promise.all([socket.close(), dumping?.close()]);
  }
}

/** The filter again, for kernels that do not apply it. */
function passes(flow: TrackedFlow, filter: FlowFilter): boolean {
  const { protocol, address, port, isTranslated: wantsTranslated, isUnanswered } = filter;
  return (
    (protocol === undefined || flow.protocol === protocol) &&
    (address === undefined || flow.destinationIP === address) &&
    (port === undefined || flow.destinationPort === port) &&
    (wantsTranslated !== true || isTranslated(flow)) &&
    (isUnanswered !== true || flow.isAnswered === false)
  );
}

/** Multicast groups of linux/netfilter/nfnetlink.h. */
const NFNLGRP_CONNTRACK_NEW = 1;
const NFNLGRP_CONNTRACK_DESTROY = 3;
/** Room for about 100,000 messages, which may come while another program has the processor. */
const EVENTS_BUFFER_BYTES = 32 * 1024 * 1024;
/** Messages gather this long: waking a thread for each would cost more than reading it. */
const GATHER_MS = 300;

export interface FlowEvents {
  readonly onBegin: (flow: TrackedFlow) => void;
  /** Gets the flow with its final counters and state. */
  readonly onEnd: (flow: TrackedFlow) => void;
  /** Events were lost because they were not read fast enough: read the table. */
  readonly onLost: () => void;
  readonly signal: AbortSignal;
}

/**
 * Reports the connections of this process's network namespace until the signal aborts, from the time of the call on.
 * Rejects with a NetlinkError if the kernel rejects the subscription (`EPERM`, no ctnetlink).
 */
export async function followFlows({ onBegin, onEnd, onLost, signal }: FlowEvents): Promise<void> {
  let hasTaken = false;
  const refused = new AbortController();
  const following = subscribe({
    protocol: NETLINK_NETFILTER,
    groups: [NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY],
    receiveBufferBytes: EVENTS_BUFFER_BYTES,
    onMessage: (reply) => {
      hasTaken = true;
      const flow = readFlow(reply);
      if (flow === undefined) return undefined;
      if ((reply.type & 0xff) === IPCTNL_MSG_CT_DELETE) onEnd(flow);
      else onBegin(flow);
      return undefined;
    },
    onOverrun: onLost,
    rest: () => {
      if (!hasTaken) return undefined;
      hasTaken = false;
      return sleep(GATHER_MS);
    },
    signal: AbortSignal.any([signal, refused.signal]),
  });
  try {
    // A kernel without ctnetlink accepts the subscription but sends nothing: ask for something that fails there.
    await Promise.race([following, askOnce()]);
    await following;
  } finally {
    refused.abort();
  }
}

async function askOnce(): Promise<void> {
  await using table = openConntrack();
  await table.statistics();
}
