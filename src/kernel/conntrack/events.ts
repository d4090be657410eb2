/** Connections as they begin and end, told by the kernel: one message each, and none between. */
import { setTimeout as sleep } from "node:timers/promises";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import { subscribe } from "../netlink/subscription.ts";
import type { TrackedFlow } from "./conntrack.ts";
import { readFlow } from "./ctnetlink.ts";

/** Of linux/netfilter/nfnetlink.h. */
const NFNLGRP_CONNTRACK_NEW = 1;
const NFNLGRP_CONNTRACK_DESTROY = 3;
/** The low byte of the message's type. */
const IPCTNL_MSG_CT_DELETE = 2;
/** About 100,000 messages: what comes while another program has the processor. */
const RECEIVE_BUFFER_BYTES = 32 * 1024 * 1024;
/** Messages gather so long: a thread that is woken for each would cost more than what it is told. */
const GATHER_MS = 20;

export interface FlowEvents {
  readonly onBegin: (flow: TrackedFlow) => void;
  /** With what it carried, and how it ended. */
  readonly onEnd: (flow: TrackedFlow) => void;
  /** Some were lost, because they were not taken fast enough: look at the table. */
  readonly onLost: () => void;
  /** Ends it. */
  readonly signal: AbortSignal;
}

/**
 * Tells of the connections of this process's network namespace until the signal aborts. What happens after the call is told.
 * Rejects with a NetlinkError when the kernel refuses (`EPERM`, no ctnetlink).
 */
export async function followFlows({ onBegin, onEnd, onLost, signal }: FlowEvents): Promise<void> {
  let hasTaken = false;
  await subscribe({
    protocol: NETLINK_NETFILTER,
    groups: [NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY],
    receiveBufferBytes: RECEIVE_BUFFER_BYTES,
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
    signal,
  });
}
