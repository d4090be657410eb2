/** What the programs of a socket have in common: whose they are, where they run, and how they are made for a test. */
import type { IpFamily } from "../../../net/ip.ts";
import type { Assembler, Label } from "../asm/assembler.ts";
import type { HelperName } from "../asm/helpers.ts";
import { type ContextRules, type Hook, memoryContext, SOCK_ADDR, socketContext } from "../contexts.ts";
import { type Field, u32, u64 } from "../layout.ts";

/**
 * Which sockets, and which maps: IPv4 sockets, IPv6 sockets, or IPv6 sockets with an address `::ffff:a.b.c.d`. The last two share
 * hooks, and leave each other's addresses alone.
 */
export type SocketKind = "IPv4" | "IPv6" | "mapped";

/** What a socket does when a program runs. */
export type SocketCall = "connect" | "sendmsg" | "recvmsg" | "getpeername" | "bind" | "release";

/** In a test, what a socket knows of itself is in words after the context; the kernel lets tests run such a program. */
export type ProgramForm = "attached" | "test";

/** The context of the `test` form: {@link SOCK_ADDR}, the cookies of socket and network namespace, the socket's return value. */
export const TEST_CONTEXT = { name: "test of a socket", size: 96 };
export const TEST_SOCKET_COOKIE: Field = u64(72);
export const TEST_NETNS_COOKIE: Field = u64(80);
export const TEST_RETURN_VALUE: Field = u32(88);

/** Registers that keep what they hold over calls. */
export const CONTEXT = "r6";

/** The third word of `::ffff:a.b.c.d` as a little-endian host reads it; as an immediate it has a sign. */
export const MAPPED_WORD = 0xffff0000 | 0;

/** Whose maps. */
export const familyOfKind = (kind: SocketKind): IpFamily => (kind === "IPv6" ? "IPv6" : "IPv4");

/** The programs of a family. A datagram of an IPv6 socket to a mapped address is sent as one of IPv4 (reference ebpf.md §1.2). */
export const PROGRAMS: Readonly<Record<IpFamily, readonly (readonly [SocketCall, SocketKind])[]>> = {
  IPv4: [
    ["connect", "IPv4"],
    ["connect", "mapped"],
    ["sendmsg", "IPv4"],
    ["recvmsg", "IPv4"],
    ["recvmsg", "mapped"],
    ["getpeername", "IPv4"],
    ["getpeername", "mapped"],
    ["release", "IPv4"],
  ],
  IPv6: [
    ["connect", "IPv6"],
    ["sendmsg", "IPv6"],
    ["recvmsg", "IPv6"],
    ["getpeername", "IPv6"],
    ["release", "IPv6"],
  ],
};

/** Those that hold node ports, of a family. */
export const HOLDING: Readonly<Record<IpFamily, readonly (readonly ["bind", SocketKind])[]>> = {
  IPv4: [
    ["bind", "IPv4"],
    ["bind", "mapped"],
  ],
  IPv6: [["bind", "IPv6"]],
};

/** Where the program of a kind runs. */
export function hookFor(call: SocketCall, kind: SocketKind): Hook {
  if (call === "release") return "sock_release";
  return `${call === "bind" ? "post_bind" : call}${kind === "IPv4" ? 4 : 6}`;
}

/** At most 15 characters. */
export function programName(call: SocketCall, kind: SocketKind): string {
  return `kpts_${call === "getpeername" ? "peer" : call}${kind === "mapped" ? "4m" : kind.slice(3)}`;
}

export function contextFor(call: SocketCall, kind: SocketKind, form: ProgramForm): ContextRules {
  return form === "test" ? memoryContext(TEST_CONTEXT) : socketContext(hookFor(call, kind));
}

/** Words of the address in the context. */
export const ADDRESS_WORDS: Readonly<Record<SocketKind, readonly Field[]>> = {
  IPv4: [u32(SOCK_ADDR.fields.userIp4.at)],
  IPv6: [0, 4, 8, 12].map((at) => u32(SOCK_ADDR.fields.userIp6.at + at)),
  mapped: [u32(SOCK_ADDR.fields.userIp6.at + 12)],
};

/** Goes on only for `::ffff:a.b.c.d`. */
export function demandMapped(a: Assembler, pass: Label): void {
  for (const [index, expected] of [0, 0, MAPPED_WORD].entries()) {
    a.load("r1", CONTEXT, u32(SOCK_ADDR.fields.userIp6.at + 4 * index));
    a.jumpIf("r1", "!=", expected, pass, 32);
  }
}

/** Leaves a cookie in r0. */
export function loadCookie(a: Assembler, form: ProgramForm, whose: "socket" | "netns"): void {
  if (form === "test") {
    a.load("r0", CONTEXT, whose === "socket" ? TEST_SOCKET_COOKIE : TEST_NETNS_COOKIE);
    return;
  }
  const helper: HelperName = whose === "socket" ? "get_socket_cookie" : "get_netns_cookie";
  a.mov("r1", CONTEXT);
  a.call(helper);
}

/**
 * What the call fails with when the program returns 0: without it, with EPERM, which people take for a policy.
 * @param canSay whether the kernel lets a program say it.
 */
export function sayReturnValue(a: Assembler, form: ProgramForm, value: number, canSay: boolean): void {
  if (!canSay) return;
  a.mov("r1", value);
  if (form === "attached") a.call("set_retval");
  else a.store(CONTEXT, TEST_RETURN_VALUE, "r1");
}
