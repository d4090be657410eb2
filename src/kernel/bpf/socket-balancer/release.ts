/** The program that runs when a socket is closed: what is known of a connected UDP socket is forgotten (reference ebpf-operation.md §5.6). */
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { Assembler } from "../asm/assembler.ts";
import type { Program } from "../asm/program.ts";
import { SOCK } from "../contexts.ts";
import { type BalancerMaps, CONNECTED_KEY } from "./maps.ts";
import { CONTEXT, contextFor, loadCookie, type ProgramForm, programName, type SocketKind } from "./socket-kind.ts";

/** @param maps of the family; sockets of either may be in them. */
export function releaseProgram(kind: SocketKind, maps: BalancerMaps, form: ProgramForm = "attached"): Program {
  const a = new Assembler(programName("release", kind), contextFor("release", kind, form));
  const done = a.label("done");
  const socket = a.slot("socket", CONNECTED_KEY.size);
  a.mov(CONTEXT, "r1");
  a.load("r1", CONTEXT, SOCK.fields.protocol);
  a.jumpIf("r1", "!=", PROTOCOL_NUMBERS.UDP, done);
  loadCookie(a, form, "socket");
  a.store("r10", CONNECTED_KEY.fields.cookie, "r0", socket.offset);
  a.loadMap("r1", maps.connected);
  a.addressOf("r2", socket);
  a.call("map_delete_elem");
  a.place(done);
  a.mov("r0", 1);
  a.exit();
  return a.finish();
}
