/** What a program is called with, and what of it it may read and write (reference ebpf-programs.md §4.2). */
import { be16, be32, type Field, type Layout, layout, u32, u64, type Width } from "./layout.ts";

/** Accesses that the verifier allows in a range of bytes. */
interface ContextAccess {
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
