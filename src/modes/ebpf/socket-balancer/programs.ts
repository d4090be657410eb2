/** The socket programs, compiled by clang from socket.bpf.c, and their hooks. */
import { existsSync, readFileSync } from "node:fs";
import { readPrograms } from "../../../kernel/bpf/elf.ts";
import type { Hook } from "../../../kernel/bpf/hooks.ts";
import type { Program } from "../../../kernel/bpf/map-definition.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { type BalancerMaps, SHARES } from "./maps.ts";

const COUNTED = { None: 0n, Frontends: 1n, Endpoints: 2n } as const;

export interface SocketProgramOptions {
  /** The cookie of the host's network namespace. */
  readonly hostCookie: bigint;
  /** Redirects connected UDP sockets, because they can be told when their backend goes. @default true */
  readonly leadsConnectedUdp?: boolean;
  /** Prevents processes of the host from binding to served node ports. @default false */
  readonly holdsNodePorts?: boolean;
  /** The host's TCP reaches node ports at 127.0.0.1 and ::1, except those of the Local policy. @default false */
  readonly leadsLocalhost?: boolean;
  /** Whether programs can set the errno of a failed call; if not, Services without endpoints use the rules. @default true */
  readonly canSetReturnValue?: boolean;
  /** What connections are counted by. @default "None" */
  readonly counted?: keyof typeof COUNTED;
}

/**
 * By family, in attach order: programs that translate addresses back come before the first redirect. Names ending in `m` are for IPv6
 * sockets with addresses `::ffff:a.b.c.d`, which use IPv4; the kernel sends a datagram of these as IPv4 (reference ebpf.md §1.2).
 */
const PROGRAMS: Readonly<Record<IpFamily, readonly (readonly [name: string, hook: Hook])[]>> = {
  IPv4: [
    ["kpts_release4", "sock_release"],
    ["kpts_peer4m", "getpeername6"],
    ["kpts_peer4", "getpeername4"],
    ["kpts_recvmsg4m", "recvmsg6"],
    ["kpts_recvmsg4", "recvmsg4"],
    ["kpts_sendmsg4", "sendmsg4"],
    ["kpts_connect4m", "connect6"],
    ["kpts_connect4", "connect4"],
  ],
  IPv6: [
    ["kpts_release6", "sock_release"],
    ["kpts_peer6", "getpeername6"],
    ["kpts_recvmsg6", "recvmsg6"],
    ["kpts_sendmsg6", "sendmsg6"],
    ["kpts_connect6", "connect6"],
  ],
};
/** Programs that hold node ports. */
const HOLDING: typeof PROGRAMS = {
  IPv4: [
    ["kpts_bind4", "post_bind4"],
    ["kpts_bind4m", "post_bind6"],
  ],
  IPv6: [["kpts_bind6", "post_bind6"]],
};

/** The programs of a family, in attach order. */
export function socketPrograms(
  family: IpFamily,
  maps: BalancerMaps,
  options: SocketProgramOptions,
): readonly (readonly [Hook, Program])[] {
  const made = programsOf(objectFile(family), family, maps, options);
  const wanted = [...PROGRAMS[family], ...(options.holdsNodePorts === true ? HOLDING[family] : [])];
  return wanted.flatMap(([name, hook]) => {
    const program = made.get(name);
    return program === undefined ? [] : [[hook, program] as const];
  });
}

/** All programs of an object file, linked with these maps. */
export function programsOf(
  file: Uint8Array,
  family: IpFamily,
  maps: BalancerMaps,
  options: SocketProgramOptions,
): ReadonlyMap<string, Program> {
  const {
    hostCookie,
    leadsConnectedUdp = true,
    leadsLocalhost = false,
    canSetReturnValue = true,
    counted = "None",
  } = options;
  const suffix = family === "IPv4" ? "4" : "6";
  const given = new Map<string, BalancerMaps["slots"] | bigint>([
    ["host_cookie", hostCookie],
    ["leads_connected_udp", leadsConnectedUdp ? 1n : 0n],
    ["leads_localhost", leadsLocalhost ? 1n : 0n],
    ["can_set_retval", canSetReturnValue ? 1n : 0n],
    ["counted", COUNTED[counted]],
    ["flows_of_netns", BigInt(maps.flows.maxEntries / SHARES)],
  ]);
  for (const map of Object.values(maps)) given.set(map.name.replace(new RegExp(`${suffix}$`), ""), map);
  return readPrograms(file, given);
}

/** Next to this module or, if that is bundled, next to the compiled modules. */
function objectFile(family: IpFamily): Uint8Array {
  const name = `socket${family === "IPv4" ? 4 : 6}.o`;
  const beside = new URL(name, import.meta.url);
  return readFileSync(existsSync(beside) ? beside : new URL(`../modes/ebpf/socket-balancer/${name}`, import.meta.url));
}
