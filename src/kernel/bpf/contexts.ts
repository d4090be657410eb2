/** What a program is called with, and what of it it may read and write (reference ebpf-programs.md §4.2). */
import { be16, be32, bytes, type Field, type Layout, layout, u8, u32, u64, type Width } from "./layout.ts";

/** Accesses that the verifier allows in a range of bytes. */
export interface ContextAccess {
  readonly at: number;
  readonly size: number;
  readonly reads: readonly Width[];
  readonly writes: readonly Width[];
}

export interface ContextRules {
  readonly name: string;
  readonly size: number;
  readonly accesses: readonly ContextAccess[];
}

/** Places in the cgroup where socket programs run; each with the numbers of its program type and of its attachment (§3.4). */
export const HOOKS = {
  connect4: { programType: 18, attachType: 10, family: 4 },
  connect6: { programType: 18, attachType: 11, family: 6 },
  sendmsg4: { programType: 18, attachType: 14, family: 4 },
  sendmsg6: { programType: 18, attachType: 15, family: 6 },
  recvmsg4: { programType: 18, attachType: 19, family: 4 },
  recvmsg6: { programType: 18, attachType: 20, family: 6 },
  getpeername4: { programType: 18, attachType: 29, family: 4 },
  getpeername6: { programType: 18, attachType: 30, family: 6 },
  /** A socket has got its address and port by bind(), and not by itself when it connects or sends. */
  post_bind4: { programType: 9, attachType: 12, family: 4 },
  post_bind6: { programType: 9, attachType: 13, family: 6 },
  /** The last descriptor of a socket is closed; kernel sockets do not run it. */
  sock_release: { programType: 9, attachType: 34, family: 0 },
} as const;

export type Hook = keyof typeof HOOKS;

/** `bpf_sock_addr`: who connects or sends, and where to; who is asked from where. Addresses and ports are as in packets; `protocol` is an IP protocol's number. */
export const SOCK_ADDR = layout("bpf_sock_addr", 72, {
  userFamily: u32(0),
  userIp4: be32(4),
  /** Four words. */
  userIp6: be32(8),
  /** A port in a word whose upper half is 0. It is written as a whole word, in the order in which it was read. */
  userPort: be16(24),
  family: u32(28),
  type: u32(32),
  protocol: u32(36),
  socket: u64(64),
});

/** The word that holds {@link SOCK_ADDR}'s port: what is loaded and stored. */
export const USER_PORT_WORD: Field = u32(24);

/** `bpf_sock`: the socket itself. `protocol` is an IP protocol's number. Of the source, addresses are as in packets, and the port is not. */
export const SOCK = layout("bpf_sock", 80, {
  family: u32(4),
  type: u32(8),
  protocol: u32(12),
  sourceIp4: be32(24),
  /** Four words. */
  sourceIp6: be32(28),
  sourcePort: u32(44),
});

/** What programs at such a hook may touch. Words are stored whole: narrower stores are refused. */
export function socketContext(hook: Hook): ContextRules {
  if (HOOKS[hook].programType === 9) return { name: hook, size: SOCK.size, accesses: [...ownAccesses(hook)] };
  const narrow: readonly Width[] = [1, 2, 4];
  const address: readonly ContextAccess[] =
    HOOKS[hook].family === 4
      ? [{ at: SOCK_ADDR.fields.userIp4.at, size: 4, reads: narrow, writes: [4] }]
      : [{ at: SOCK_ADDR.fields.userIp6.at, size: 16, reads: [1, 2, 4, 8], writes: [4, 8] }];
  return {
    name: hook,
    size: SOCK_ADDR.size,
    accesses: [
      { at: SOCK_ADDR.fields.userFamily.at, size: 4, reads: [4], writes: [] },
      ...address,
      { at: SOCK_ADDR.fields.userPort.at, size: 4, reads: narrow, writes: [4] },
      { at: SOCK_ADDR.fields.family.at, size: 12, reads: [4], writes: [] },
    ],
  };
}

/** What may be read of the socket itself; where it is bound to only once it is. */
function* ownAccesses(hook: Hook): Generator<ContextAccess> {
  const { family, sourceIp4, sourceIp6, sourcePort } = SOCK.fields;
  yield { at: family.at, size: 12, reads: [4], writes: [] };
  if (hook !== "post_bind4" && hook !== "post_bind6") return;
  const isIPv4 = hook === "post_bind4";
  yield { at: isIPv4 ? sourceIp4.at : sourceIp6.at, size: isIPv4 ? 4 : 16, reads: [4], writes: [] };
  yield { at: sourcePort.at, size: 4, reads: [4], writes: [] };
}

/** `__sk_buff`: a packet at an interface. */
export const PACKET = layout("__sk_buff", 192, {
  /** 0: to this machine's address of the link. */
  packetType: u32(4),
  mark: u32(8),
  /** An Ethernet type; the word's lower half has its bytes as they are in packets. */
  protocol: u32(16),
  /** Whether it carries the tag of a VLAN, whose interface will see it again without. */
  hasVlan: u32(20),
  interfaceIndex: u32(40),
});

/** Programs that packets meet where they come in (tcx, Linux 6.6): numbers of the program's type and of its attachment. */
export const INGRESS = { programType: 3, attachType: 46 } as const;

/** What such a program returns when the packet goes on its way: programs after it see it, too. */
export const TCX_NEXT = -1;

/** Words of {@link PACKET} that such programs read. They write none. */
export const PACKET_CONTEXT: ContextRules = {
  name: "ingress",
  size: PACKET.size,
  accesses: [
    { at: PACKET.fields.packetType.at, size: 8, reads: [4], writes: [] },
    { at: PACKET.fields.protocol.at, size: 8, reads: [4], writes: [] },
    { at: PACKET.fields.interfaceIndex.at, size: 4, reads: [4], writes: [] },
  ],
};

/** `bpf_fib_lookup`: the route of a packet, asked for as if it had come in by an interface. */
export const FIB_LOOKUP = layout("bpf_fib_lookup", 64, {
  /** AF_INET or AF_INET6. */
  family: u8(0),
  protocol: u8(1),
  sourcePort: be16(2),
  destinationPort: be16(4),
  interfaceIndex: u32(8),
  /** In: the packet's. Out, if asked for: the address that the route's interface would send from. */
  source: bytes(16, 16),
  destination: bytes(32, 16),
});
/** No look for the neighbour's link address (Linux 6.3), and the source address (6.7), please. */
export const FIB_FLAGS = 4 | 16;

/** What a program of type SYSCALL is called with: memory of the caller, for tests of other programs' bodies (§4.6). */
export function memoryContext(what: Pick<Layout<Readonly<Record<string, Field>>>, "name" | "size">): ContextRules {
  const all: readonly Width[] = [1, 2, 4, 8];
  return { name: what.name, size: what.size, accesses: [{ at: 0, size: what.size, reads: all, writes: all }] };
}

/** Whether the verifier lets a program access these bytes. */
export function mayAccess(rules: ContextRules, at: number, width: Width, how: "reads" | "writes"): boolean {
  return rules.accesses.some(
    (range) => at >= range.at && at + width <= range.at + range.size && at % width === 0 && range[how].includes(width),
  );
}
