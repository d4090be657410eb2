/** Accounting counters over nfnetlink_acct (reference iptables-operation.md §12.2). */
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { attributes, u64be, zstring } from "../netlink/attributes.ts";
import { NETLINK_NETFILTER, NLM_F_CREATE } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import { undefinedIf } from "../netlink/errors.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFNL_SUBSYS_ACCT, NFPROTO_UNSPEC, putNfnetlink, readNfnetlink } from "../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../netlink/socket.ts";

/** The accounting counters of one network namespace. Names have at most 31 characters. */
export interface Nfacct {
  /** Creates the counter unless it exists. Failures are logged. @returns whether it exists now. */
  ensure(name: string): Promise<boolean>;
  /** Packets since the counter was created; `undefined` if it does not exist. @throws NetlinkError */
  packets(name: string): Promise<number | undefined>;
  close(): Promise<void>;
}

/** A counter that is unlikely to exist: the error of reading it shows whether the kernel supports counters. */
const PROBE_NAME = "IMayExist";

const NFNL_MSG_ACCT_NEW = 0;
const NFNL_MSG_ACCT_GET = 1;

const counter = attributes({ name: [1, zstring], packets: [2, u64be] });

/** Opens the counters of this process's network namespace; `undefined`, with a log line, if the kernel has none. */
export async function openNfacct(log: Logger): Promise<Nfacct | undefined> {
  const socket = NetlinkSocket.open(NETLINK_NETFILTER);

  async function packets(name: string): Promise<number | undefined> {
    const write = (request: MessageBuffer): void => writeCounter(request, "get", name);
    const asked = answersTo(socket, write, (reply) => readNfnetlink(reply, counter).packets ?? 0);
    return (await asked.catch(undefinedIf("ENOENT")))?.[0];
  }

  try {
    await packets(PROBE_NAME);
  } catch (error) {
    log.info("Kernel has no nfacct counters, rules are written without them", {
      cannot: "counters of dropped and localhost packets (nfacct)",
      why: messageOf(error),
    });
    await socket.close();
    return undefined;
  }
  return {
    packets,
    async ensure(name) {
      try {
        if ((await packets(name)) !== undefined) return true;
        // Another program was faster.
        await answersTo(socket, (request) => writeCounter(request, "create", name)).catch(undefinedIf("EBUSY"));
        return true;
      } catch (error) {
        log.error("Failed to create nfacct counter, the rule is written without it", error, { counter: name });
        return false;
      }
    },
    close: () => socket.close(),
  };
}

export function writeCounter(request: MessageBuffer, verb: "get" | "create", name: string): void {
  const [message, flags] = verb === "get" ? [NFNL_MSG_ACCT_GET, 0] : [NFNL_MSG_ACCT_NEW, NLM_F_CREATE];
  putNfnetlink(request, NFNL_SUBSYS_ACCT, message, flags, NFPROTO_UNSPEC, (out) => counter.write(out, { name }));
}
