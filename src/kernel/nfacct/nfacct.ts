/** Accounting counters over nfnetlink_acct (reference iptables-operation.md §12.2). */
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { attributes, u64be, zstring } from "../netlink/attributes.ts";
import { NETLINK_NETFILTER, NLM_F_CREATE } from "../netlink/constants.ts";
import { undefinedIf } from "../netlink/errors.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { beginNfnetlink, NFNL_SUBSYS_ACCT, NFPROTO_UNSPEC, nfnetlinkPayload } from "../netlink/nfnetlink.ts";
import { NetlinkSocket } from "../netlink/socket.ts";

export interface CounterValue {
  readonly packets: number;
  readonly bytes: number;
}

/** The counters of one network namespace. Names have at most 31 characters. Methods throw when the kernel refuses. */
export interface AccountingCounters {
  /** Creates the counter unless it exists. Existing values are kept. */
  ensure(name: string): Promise<void>;
  /** The counter's value since it was created; `undefined` when there is none. */
  read(name: string): Promise<CounterValue | undefined>;
}

/** Longest name that the kernel takes (NFACCT_NAME_MAX without the terminator). */
const NFACCT_NAME_LIMIT = 31;

/** A counter that hardly exists: reading it shows whether the kernel has any. */
const PROBE_NAME = "IMayExist";

/** Throws a `RangeError` for a name that the kernel would cut or refuse. */
export function checkCounterName(name: string): void {
  if (name === "" || Buffer.byteLength(name) > NFACCT_NAME_LIMIT) {
    throw new RangeError(`accounting counter name ${JSON.stringify(name)}: expected 1 to ${NFACCT_NAME_LIMIT} bytes`);
  }
}

const NFNL_MSG_ACCT_NEW = 0;
const NFNL_MSG_ACCT_GET = 1;

const counter = attributes({ name: [1, zstring], packets: [2, u64be], bytes: [3, u64be] });

interface NetlinkCounters extends AccountingCounters, AsyncDisposable {
  close(): Promise<void>;
}

/** Opens the counters of this process's network namespace. */
export function openAccountingCounters(): NetlinkCounters {
  const socket = NetlinkSocket.open(NETLINK_NETFILTER);

  async function read(name: string): Promise<CounterValue | undefined> {
    checkCounterName(name);
    const request = new MessageBuffer(64);
    writeCounterRequest(request, "get", name);
    let value: CounterValue | undefined;
    const asked = socket.request(request, (reply) => {
      const { input, start, end } = nfnetlinkPayload(reply);
      const { packets = 0, bytes = 0 } = counter.read(input, start, end);
      value = { packets, bytes };
    });
    await asked.catch(undefinedIf("ENOENT"));
    return value;
  }

  return {
    read,
    async ensure(name) {
      if ((await read(name)) !== undefined) return;
      const request = new MessageBuffer(64);
      writeCounterRequest(request, "create", name);
      // Another program was faster.
      await socket.request(request).catch(undefinedIf("EBUSY"));
    },
    close: () => socket.close(),
    [Symbol.asyncDispose]: () => socket.close(),
  };
}

/** Counters on a socket of their own. */
interface OpenCounters extends AvailableCounters {
  close(): Promise<void>;
}

/** The counters of this process's network namespace for as long as it runs; `undefined` when the kernel has none. */
export async function openNfacct(log: Logger): Promise<OpenCounters | undefined> {
  const counters = openAccountingCounters();
  const available = await availableCounters(counters, log);
  if (available !== undefined) return { ...available, close: () => counters.close() };
  await counters.close();
  return undefined;
}

export function writeCounterRequest(messages: MessageBuffer, verb: "get" | "create", name: string): void {
  const [message, flags] = verb === "get" ? [NFNL_MSG_ACCT_GET, 0] : [NFNL_MSG_ACCT_NEW, NLM_F_CREATE];
  beginNfnetlink(messages, NFNL_SUBSYS_ACCT, message, flags, NFPROTO_UNSPEC);
  counter.write(messages.out, { name });
  messages.end();
}

interface AvailableCounters {
  /** Creates the counter if it is missing; resolves to whether it exists now. Failures are logged. */
  ensure(name: string): Promise<boolean>;
  /** Packets counted so far; `undefined` when there is no such counter. Rejects when the kernel refuses. */
  packets(name: string): Promise<number | undefined>;
}

/** Resolves to `undefined`, with a log line, when the kernel has no accounting objects (reference iptables-operation.md §12.2). */
export async function availableCounters(
  counters: AccountingCounters,
  log: Logger,
): Promise<AvailableCounters | undefined> {
  try {
    await counters.read(PROBE_NAME);
  } catch (error) {
    log.info("Kernel has no nfacct counters, rules are written without them", {
      cannot: "counters of dropped and localhost packets (nfacct)",
      why: messageOf(error),
    });
    return undefined;
  }
  return {
    async ensure(name) {
      try {
        await counters.ensure(name);
        return true;
      } catch (error) {
        log.error("Failed to create nfacct counter, the rule is written without it", error, { counter: name });
        return false;
      }
    },
    async packets(name) {
      return (await counters.read(name))?.packets;
    },
  };
}
