/** What the kernel calls for packets at its netfilter hooks (linux/netfilter/nfnetlink_hook.h). */
import { attributes, binary, i32be, u8, u32be, type ValueOf, zstring } from "./netlink/attributes.ts";
import { NETLINK_NETFILTER, NLM_F_DUMP } from "./netlink/constants.ts";
import { answersTo } from "./netlink/dump-retry.ts";
import { NetlinkError } from "./netlink/errors.ts";
import type { Reply } from "./netlink/frames.ts";
import type { MessageBuffer } from "./netlink/message-buffer.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6, putNfnetlink, readNfnetlink } from "./netlink/nfnetlink.ts";
import { NetlinkSocket } from "./netlink/socket.ts";

const NFNL_SUBSYS_HOOK = 12;
const NFNL_MSG_HOOK_GET = 0;
/** NFNL_HOOK_TYPE_*. */
const [CHAIN, BPF] = [1, 2] as const;
/** Names of hooks by number; families by NFPROTO_*. */
const OF_PACKETS = ["prerouting", "input", "forward", "output", "postrouting"];
const OF_DEVICES = ["ingress", "egress"];
const HOOKED = new Map([
  [NFPROTO_IPV4, "ip"],
  [NFPROTO_IPV6, "ip6"],
  [7, "bridge"],
  [5, "netdev"],
] as const);
/** A chain of `inet` is called at hooks of the others. */
const TABLES: ReadonlyMap<number, string> = new Map([...HOOKED, [1, "inet"]]);
/** This kernel has no such family or hook, or the device is gone. */
const NOT_HERE = new Set(["EPROTONOSUPPORT", "EOPNOTSUPP", "EINVAL", "ENODEV"]);

/** One function that the kernel calls. */
export interface HookEntry {
  readonly family: "ip" | "ip6" | "bridge" | "netdev";
  readonly hook: string;
  /** Of the family `netdev`. */
  readonly device: string | undefined;
  readonly priority: number;
  readonly function: string | undefined;
  readonly module: string | undefined;
  /** `family table chain`, if it is a base chain of nftables. */
  readonly chain: string | undefined;
  /** The id of a BPF program. */
  readonly program: number | undefined;
}

/** `first` is the table of a chain, or the id of a program. */
const description = attributes({ first: [1, binary], family: [2, u8], name: [3, zstring] });
const entry = attributes({
  hook: [1, u32be],
  priority: [2, i32be],
  device: [3, zstring],
  function: [4, zstring],
  module: [5, zstring],
  described: [6, attributes({ as: [1, description], type: [2, u32be] })],
});

/**
 * Everything that is called, in the order of the calls at each hook. Before 7.3 all nat chains of a hook are one function. The kernel loads
 * its module `nfnetlink_hook` for the answer.
 *
 * @param devices whose own hooks are asked for, too. @returns undefined if this kernel does not list its hooks.
 * @throws NetlinkError, such as EPERM without NET_ADMIN
 */
export async function netfilterHooks(devices: readonly string[]): Promise<readonly HookEntry[] | undefined> {
  await using socket = NetlinkSocket.open(NETLINK_NETFILTER);
  return await hooksBy(socket, devices);
}

/** {@link netfilterHooks} by a given socket. */
export async function hooksBy(
  socket: Pick<NetlinkSocket, "dump">,
  devices: readonly string[],
): Promise<readonly HookEntry[] | undefined> {
  const found: HookEntry[] = [];
  for (const [nfproto, family] of HOOKED) {
    const isOfDevices = family === "netdev";
    for (const device of isOfDevices ? devices : [undefined]) {
      for (const [number, hook] of (isOfDevices ? OF_DEVICES : OF_PACKETS).entries()) {
        const write = (request: MessageBuffer): void =>
          putNfnetlink(request, NFNL_SUBSYS_HOOK, NFNL_MSG_HOOK_GET, NLM_F_DUMP, nfproto, (out) =>
            entry.write(out, { hook: number, device }),
          );
        try {
          const read = (reply: Reply) => ({ family, hook, device, ...entryOf(readNfnetlink(reply, entry)) });
          found.push(...(await answersTo(socket, write, read)));
        } catch (error) {
          if (!(error instanceof NetlinkError && NOT_HERE.has(error.code))) throw error;
          // Every kernel has hooks of IPv4.
          if (family === "ip") return undefined;
        }
      }
    }
  }
  return found;
}

function entryOf({ priority = 0, described, ...named }: ValueOf<typeof entry>) {
  const { type, as: { first = new Uint8Array(), family = 0, name = "" } = {} } = described ?? {};
  const bytes = Buffer.from(first);
  const table = `${TABLES.get(family)} ${bytes.toString("utf8", 0, bytes.indexOf(0))}`;
  return {
    ...{ priority, function: named.function, module: named.module },
    chain: type === CHAIN ? `${table} ${name}` : undefined,
    program: type === BPF && bytes.length === 4 ? bytes.readUInt32BE() : undefined,
  };
}
