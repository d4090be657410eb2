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
import { type BalancerMaps, FLOW_KEY, FLOW_VALUE, FLOWS_OF_SOCKET, PEER_KEY } from "./maps.ts";
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
  const [flow, found] = [a.slot("flow", FLOW_KEY.size), a.label("found")];
  const value = FLOW_VALUE[family].fields;
  a.clear(flow);
  a.load("r1", "r10", cookie, peer.offset);
  a.store("r10", FLOW_KEY.fields.cookie, "r1", flow.offset);
  for (let number = 0; number < FLOWS_OF_SOCKET; number++) {
    const next = a.label("next");
    a.store("r10", FLOW_KEY.fields.number, number, flow.offset);
    lookUp(a, maps.flows, flow);
    a.jumpIf("r0", "==", 0, pass);
    for (const word of ADDRESS_WORDS[kind].keys()) {
      a.load("r1", "r0", u32(value.address.at + 4 * word));
      a.load("r2", "r10", u32(address.at + 4 * word), peer.offset);
      a.jumpIf("r1", "!=", "r2", next);
    }
    a.load("r1", "r0", value.port);
    a.load("r2", "r10", port, peer.offset);
    a.jumpIf("r1", "==", "r2", found);
    a.place(next);
  }
  a.jump(pass);
  a.place(found);
  for (const [word, field] of ADDRESS_WORDS[kind].entries()) {
    a.load("r1", "r0", u32(value.dialled.at + 4 * word));
    a.store(CONTEXT, field, "r1");
  }
  a.load("r1", "r0", value.dialledPort);
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
