/** Socket programs in a form that the kernel lets tests run: words after the context describe the socket. */
import { readFileSync } from "node:fs";
import { be16, be32, type Field, layout, u32, u64 } from "../../../../kernel/bpf/layout.ts";
import type { Program } from "../../../../kernel/bpf/map-definition.ts";
import type { IpFamily } from "../../../../net/ip.ts";
import type { BalancerMaps } from "../maps.ts";
import { programsOf, type SocketProgramOptions } from "../programs.ts";

/**
 * The sockets and maps to use: IPv4 sockets, IPv6 sockets, or IPv6 sockets with an address `::ffff:a.b.c.d`. The last
 * two share hooks, but each ignores the other's addresses.
 */
export type SocketKind = "IPv4" | "IPv6" | "mapped";

/** What a socket does when a program runs. */
type SocketCall = "connect" | "sendmsg" | "recvmsg" | "peer" | "bind";

/** The context: {@link SOCK_ADDR} or {@link SOCK}, the cookies of socket and network namespace, the return value, whether bound to loopback. */
export const TEST_CONTEXT_BYTES = 96;
export const TEST_SOCKET_COOKIE: Field = u64(72);
export const TEST_NETNS_COOKIE: Field = u64(80);
export const TEST_RETURN_VALUE: Field = u32(88);
/** 1: the socket can only reach this machine. */
export const TEST_IS_BOUND: Field = u32(92);

/** `bpf_sock_addr`: the client, and its destination or peer. Addresses and ports are in network byte order. */
export const SOCK_ADDR = layout("bpf_sock_addr", 72, {
  userIp4: be32(4),
  /** Four words. */
  userIp6: be32(8),
  /** In a word whose upper half is 0. */
  userPort: be16(24),
  protocol: u32(36),
});

/** The word that contains {@link SOCK_ADDR}'s port. */
export const USER_PORT_WORD: Field = u32(24);

/** `bpf_sock`: the socket itself. Source addresses are in network byte order, the source port is not. */
export const SOCK = layout("bpf_sock", 80, {
  protocol: u32(12),
  sourceIp4: be32(24),
  /** Four words. */
  sourceIp6: be32(28),
  sourcePort: u32(44),
});

/** The family of the maps. */
export const familyOfKind = (kind: SocketKind): IpFamily => (kind === "IPv6" ? "IPv6" : "IPv4");

/** @param maps of IPv6 for `IPv6`, otherwise of IPv4. */
export function testProgram(
  call: SocketCall,
  kind: SocketKind,
  maps: BalancerMaps,
  options: SocketProgramOptions,
): Program {
  const family = familyOfKind(kind);
  const name = `kpts_${call}${kind === "mapped" ? "4m" : kind.slice(3)}`;
  const file = readFileSync(new URL(`socket${kind === "IPv6" ? 6 : 4}.o`, import.meta.url));
  const program = programsOf(file, family, maps, options).get(name);
  if (program === undefined) throw new Error(`there is no program ${name}`);
  return program;
}
