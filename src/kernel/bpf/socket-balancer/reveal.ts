/**
 * The programs that run when a socket is told where a datagram came from, or who its peer is: a backend to which it was led appears under
 * the address that was asked (reference ebpf-operation.md §5.5). They cannot refuse anything.
 */
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { Assembler } from "../asm/assembler.ts";
import type { Program } from "../asm/program.ts";
import { SOCK_ADDR, USER_PORT_WORD } from "../contexts.ts";
import { u32 } from "../layout.ts";
import { lookUp } from "./map-calls.ts";
import { type BalancerMaps, PEER_KEY, PEER_VALUE } from "./maps.ts";
import {
  ADDRESS_WORDS,
  CONTEXT,
  contextFor,
  demandMapped,
  familyOfKind,
  loadCookie,
  type ProgramForm,
  programName,
  type SocketKind,
} from "./socket-kind.ts";
import { revealTcpPeer } from "./tcp-peers.ts";

const PROTOCOL = "r9";

/** @param maps of IPv6 for `IPv6`, else of IPv4. */
export function revealProgram(
  call: "recvmsg" | "getpeername",
  kind: SocketKind,
  maps: BalancerMaps,
  form: ProgramForm = "attached",
): Program {
  const family = familyOfKind(kind);
  const a = new Assembler(programName(call, kind), contextFor(call, kind, form));
  const [pass, isTcp] = [a.label("pass"), a.label("tcp")];
  const peer = a.slot("peer", PEER_KEY[family].size);
  const { cookie, address, port } = PEER_KEY[family].fields;
  a.mov(CONTEXT, "r1");
  a.load(PROTOCOL, CONTEXT, SOCK_ADDR.fields.protocol);
  const isUdp = a.label("udp");
  a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.UDP, isUdp);
  if (call === "getpeername") a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, isUdp);
  a.jump(pass);
  a.place(isUdp);
  if (kind === "mapped") demandMapped(a, pass);
  a.clear(peer);
  loadCookie(a, form, "socket");
  a.store("r10", cookie, "r0", peer.offset);
  for (const [index, word] of ADDRESS_WORDS[kind].entries()) {
    a.load("r1", CONTEXT, word);
    a.store("r10", u32(address.at + 4 * index), "r1", peer.offset);
  }
  a.load("r1", CONTEXT, USER_PORT_WORD);
  a.store("r10", port, "r1", peer.offset);
  if (call === "getpeername") a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, isTcp);
  lookUp(a, maps.udpPeers, peer);
  a.jumpIf("r0", "==", 0, pass);
  const value = PEER_VALUE[family].fields;
  for (const [word, field] of ADDRESS_WORDS[kind].entries()) {
    a.load("r1", "r0", u32(value.address.at + 4 * word));
    a.store(CONTEXT, field, "r1");
  }
  a.load("r1", "r0", value.port);
  a.store(CONTEXT, USER_PORT_WORD, "r1");
  if (call === "getpeername") {
    a.jump(pass);
    a.place(isTcp);
    revealTcpPeer(a, maps, kind, peer, a.slot("index", 4), pass);
  }
  a.place(pass);
  a.mov("r0", 1);
  a.exit();
  return a.finish();
}
