/** The program that runs when a socket is closed: what is known of a UDP socket is forgotten (reference ebpf-operation.md §5.6). */
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { Assembler } from "../asm/assembler.ts";
import type { Program } from "../asm/program.ts";
import { SOCK } from "../contexts.ts";
import { remove } from "./map-calls.ts";
import { type BalancerMaps, FLOW_KEY, FLOWS_OF_SOCKET } from "./maps.ts";
import { CONTEXT, contextFor, loadCookie, type ProgramForm, programName, type SocketKind } from "./socket-kind.ts";

/** @param maps of the family; sockets of either may be in them. */
export function releaseProgram(kind: SocketKind, maps: BalancerMaps, form: ProgramForm = "attached"): Program {
  const a = new Assembler(programName("release", kind), contextFor("release", kind, form));
  const [done, forgotten] = [a.label("done"), a.label("forgotten")];
  const flow = a.slot("flow", FLOW_KEY.size);
  a.mov(CONTEXT, "r1");
  a.load("r1", CONTEXT, SOCK.fields.protocol);
  a.jumpIf("r1", "!=", PROTOCOL_NUMBERS.UDP, done);
  loadCookie(a, form, "socket");
  a.clear(flow);
  a.store("r10", FLOW_KEY.fields.cookie, "r0", flow.offset);
  for (let number = 0; number < FLOWS_OF_SOCKET; number++) {
    a.store("r10", FLOW_KEY.fields.number, number, flow.offset);
    remove(a, maps.flows, flow);
    // Numbers follow each other. A socket without flows was never led.
    a.jumpIf("r0", "!=", 0, number === 0 ? done : forgotten);
  }
  a.place(forgotten);
  // The cookie is what a flow begins with.
  remove(a, maps.connected, flow);
  a.place(done);
  a.mov("r0", 1);
  a.exit();
  return a.finish();
}
