/** The programs of sockets, as clang has made them of socket.bpf.c, and where they run. */
import { existsSync, readFileSync } from "node:fs";
import type { IpFamily } from "../../../net/ip.ts";
import { readPrograms } from "../elf.ts";
import type { Hook } from "../hooks.ts";
import type { Program } from "../map-definition.ts";
import { type BalancerMaps, SHARES } from "./maps.ts";

const COUNTED = { None: 0n, Frontends: 1n, Endpoints: 2n } as const;

export interface SocketProgramOptions {
  /** Of the network namespace that is the host's. */
  readonly hostCookie: bigint;
  /** All other clients are left to the packet path. @default false */
  readonly isForHostOnly?: boolean;
  /** Connected UDP sockets of which network namespaces can be told when their backend goes: only these are led. @default "all" */
  readonly connectedUdp?: "all" | "host" | "none";
  /** Processes of the host may not bind to node ports that are served. @default false */
  readonly holdsNodePorts?: boolean;
  /** Node ports that TCP of the host is led to at 127.0.0.1 and ::1; `cluster`: without those of the Local policy. @default "none" */
  readonly atLocalhost?: "none" | "cluster" | "all";
  /** Whether the kernel lets programs say what a call fails with: if not, Services without endpoints take the rules. @default true */
  readonly canSetReturnValue?: boolean;
  /** What of connections is counted. @default "None" */
  readonly counted?: keyof typeof COUNTED;
}

/**
 * By family, in the order in which they are attached: an address is revealed before the first socket is led. A name that ends in `m` is of
 * IPv6 sockets with addresses `::ffff:a.b.c.d`, which belong to IPv4; a datagram of these is sent as one of IPv4 (reference ebpf.md §1.2).
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
/** Those that hold node ports. */
const HOLDING: typeof PROGRAMS = {
  IPv4: [
    ["kpts_bind4", "post_bind4"],
    ["kpts_bind4m", "post_bind6"],
  ],
  IPv6: [["kpts_bind6", "post_bind6"]],
};

const CONNECTED_UDP = { none: 0n, host: 1n, all: 2n } as const;
const AT_LOCALHOST = { none: 0n, cluster: 1n, all: 2n } as const;

/** The programs of a family, in the order in which they are attached. */
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

/** All programs in an object file, over these maps. */
export function programsOf(
  file: Uint8Array,
  family: IpFamily,
  maps: BalancerMaps,
  options: SocketProgramOptions,
): ReadonlyMap<string, Program> {
  const {
    hostCookie,
    isForHostOnly = false,
    connectedUdp = "all",
    atLocalhost = "none",
    canSetReturnValue = true,
    counted = "None",
  } = options;
  const suffix = family === "IPv4" ? "4" : "6";
  const given = new Map<string, BalancerMaps["slots"] | bigint>([
    ["host_cookie", hostCookie],
    ["is_for_host_only", isForHostOnly ? 1n : 0n],
    ["connected_udp", CONNECTED_UDP[connectedUdp]],
    ["at_localhost", AT_LOCALHOST[atLocalhost]],
    ["can_set_retval", canSetReturnValue ? 1n : 0n],
    ["counted", COUNTED[counted]],
    ["flows_of_netns", BigInt(maps.flows.maxEntries / SHARES)],
  ]);
  for (const map of Object.values(maps)) given.set(map.name.replace(new RegExp(`${suffix}$`), ""), map);
  return readPrograms(file, given);
}

/** Beside this module, or, when that is in the bundle, beside the compiled modules. */
function objectFile(family: IpFamily): Uint8Array {
  const name = `socket${family === "IPv4" ? 4 : 6}.o`;
  const beside = new URL(name, import.meta.url);
  return readFileSync(existsSync(beside) ? beside : new URL(`../kernel/bpf/socket-balancer/${name}`, import.meta.url));
}
