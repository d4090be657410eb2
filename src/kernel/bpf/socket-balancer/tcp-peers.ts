/**
 * Under which address a TCP socket knows its backend: an array that is overwritten in turns costs a connection a tenth of what a hash
 * does that forgets what was used longest ago. Who reads an element finds its own cookie in it before and after.
 */
import type { Assembler, Label, StackSlot } from "../asm/assembler.ts";
import { USER_PORT_WORD } from "../contexts.ts";
import { u32, u64 } from "../layout.ts";
import { lookUp } from "./map-calls.ts";
import { type BalancerMaps, FRONTEND_KEY, PEER_KEY, TCP_PEER } from "./maps.ts";
import { ADDRESS_WORDS, CONTEXT, familyOfKind, type SocketKind } from "./socket-kind.ts";

/** Registers that keep what they hold over calls, and are free where an element is read. */
const COOKIE = "r7";
const OTHER = "r8";

/**
 * Writes what was dialled. @param peer cookie of the socket, and the backend: {@link PEER_KEY}. @param dialled a key of the frontends.
 * @param index is overwritten.
 */
export function writeTcpPeer(
  a: Assembler,
  maps: BalancerMaps,
  kind: SocketKind,
  peer: StackSlot,
  dialled: StackSlot,
  index: StackSlot,
): void {
  const family = familyOfKind(kind);
  const element = TCP_PEER[family].fields;
  const frontend = FRONTEND_KEY[family].fields;
  const isWritten = a.label("peer written");
  findElement(a, maps, family, peer, index);
  a.jumpIf("r0", "==", 0, isWritten);
  a.mov("r1", 0);
  a.store("r0", element.cookie, "r1");
  // Address and port of the backend lie alike in both.
  for (let at = PEER_KEY[family].fields.address.at; at < PEER_KEY[family].size; at += 8) {
    a.load("r1", "r10", u64(at), peer.offset);
    a.store("r0", u64(at), "r1");
  }
  for (const word of ADDRESS_WORDS[kind].keys()) {
    a.load("r1", "r10", u32(frontend.address.at + 4 * word), dialled.offset);
    a.store("r0", u32(element.dialled.at + 4 * word), "r1");
  }
  a.load("r1", "r10", frontend.port, dialled.offset);
  a.store("r0", u32(element.dialledPort.at), "r1");
  a.load("r1", "r10", PEER_KEY[family].fields.cookie, peer.offset);
  a.store("r0", element.cookie, "r1");
  a.place(isWritten);
}

/** Puts what was dialled into the context, if the element is of this socket and this backend. @param peer as it was written. */
export function revealTcpPeer(
  a: Assembler,
  maps: BalancerMaps,
  kind: SocketKind,
  peer: StackSlot,
  index: StackSlot,
  pass: Label,
): void {
  const family = familyOfKind(kind);
  const element = TCP_PEER[family].fields;
  findElement(a, maps, family, peer, index);
  a.jumpIf("r0", "==", 0, pass);
  a.load(COOKIE, "r10", PEER_KEY[family].fields.cookie, peer.offset);
  a.load(OTHER, "r0", element.cookie);
  a.jumpIf(OTHER, "!=", COOKIE, pass);
  for (let at = PEER_KEY[family].fields.address.at; at < PEER_KEY[family].size; at += 8) {
    a.load("r1", "r10", u64(at), peer.offset);
    a.load("r2", "r0", u64(at));
    a.jumpIf("r1", "!=", "r2", pass);
  }
  const words = ADDRESS_WORDS[kind];
  const registers = ["r1", "r2", "r3", "r4"] as const;
  for (const word of words.keys()) a.load(registers[word] ?? "r4", "r0", u32(element.dialled.at + 4 * word));
  a.load("r5", "r0", u32(element.dialledPort.at));
  a.load(OTHER, "r0", element.cookie);
  a.jumpIf(OTHER, "!=", COOKIE, pass);
  for (const [word, field] of words.entries()) a.store(CONTEXT, field, registers[word] ?? "r4");
  a.store(CONTEXT, USER_PORT_WORD, "r5");
}

/** Leaves a pointer to the element in r0, or 0. */
function findElement(
  a: Assembler,
  maps: BalancerMaps,
  family: "IPv4" | "IPv6",
  peer: StackSlot,
  index: StackSlot,
): void {
  a.load("r1", "r10", PEER_KEY[family].fields.cookie, peer.offset);
  a.alu("and", "r1", maps.tcpPeers.maxEntries - 1, 32);
  a.store("r10", u32(0), "r1", index.offset);
  lookUp(a, maps.tcpPeers, index);
}
