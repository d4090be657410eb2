/** The statistics of connection tracking: how full the table is, and what was lost. */
import { counted } from "../../logging/counted.ts";
import { attributes, type Codec, u32be } from "../netlink/attributes.ts";
import { NLM_F_DUMP } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import { NFNL_SUBSYS_CTNETLINK, putNfnetlink, readNfnetlink } from "../netlink/nfnetlink.ts";
import type { NetlinkSocket } from "../netlink/socket.ts";

const IPCTNL_MSG_CT_GET_STATS_CPU = 4;
const IPCTNL_MSG_CT_GET_STATS = 5;
const total = attributes({ entries: [1, u32be], max: [2, u32be] });
const perCpu = attributes({ invalid: [4, u32be], insertFailed: [9, u32be], dropped: [10, u32be], early: [11, u32be] });

/** The counters start when the network namespace is created. */
export interface ConntrackStatistics {
  readonly entries: number;
  /** The limit; 0 if unknown. */
  readonly max: number;
  /** Packets that belong to no connection, or violate its protocol. */
  readonly invalid: number;
  /** Connections that could not be inserted: two packets raced, or source ports ran out. Their packet is lost. */
  readonly insertFailed: number;
  /** Packets lost because the table was full. */
  readonly dropped: number;
  /** Entries that were evicted to make room. */
  readonly earlyDropped: number;
}

/** Reads the statistics of the socket's network namespace. @throws NetlinkError when the kernel rejects the request. */
export async function readStatistics(socket: NetlinkSocket): Promise<ConntrackStatistics> {
  const ask = <T>(message: number, flags: number, codec: Codec<T>): Promise<T[]> =>
    answersTo(
      socket,
      (request) => putNfnetlink(request, NFNL_SUBSYS_CTNETLINK, message, flags, 0),
      (reply) => readNfnetlink(reply, codec),
    );
  const [{ entries = 0, max = 0 } = {}] = await ask(IPCTNL_MSG_CT_GET_STATS, 0, total);
  const sum = { entries, max, invalid: 0, insertFailed: 0, dropped: 0, earlyDropped: 0 };
  for (const cpu of await ask(IPCTNL_MSG_CT_GET_STATS_CPU, NLM_F_DUMP, perCpu)) {
    sum.invalid += cpu.invalid ?? 0;
    sum.insertFailed += cpu.insertFailed ?? 0;
    sum.dropped += cpu.dropped ?? 0;
    sum.earlyDropped += cpu.early ?? 0;
  }
  return sum;
}

/** Warnings for people, in sentences. */
export function statisticsNotes(statistics: ConntrackStatistics): readonly string[] {
  const { entries, max, insertFailed, dropped, earlyDropped } = statistics;
  const notes: string[] = [];
  const share = max === 0 ? 0 : entries / max;
  if (share >= 0.9) {
    notes.push(
      `Connection tracking is ${Math.floor(share * 100)} % full (${entries} of ${max}): when it is full, new connections are dropped.`,
    );
  }
  if (dropped + earlyDropped > 0) {
    const lost = `it dropped ${counted(dropped, "packet")} and forgot ${counted(earlyDropped, "connection")}`;
    notes.push(`Connection tracking has been full: ${lost} since the node started (nf_conntrack_max).`);
  }
  if (insertFailed > 0)
    notes.push(`Connection tracking lost the first packet of ${counted(insertFailed, "connection")} (insert_failed).`);
  return notes;
}
