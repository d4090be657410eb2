/**
 * The program that runs when a socket of the host's network has been bound: it is refused where it would have a node port that is
 * served (reference ebpf.md §1.11). Sockets that are bound already, those of pods, and loopback addresses are left alone.
 */
import { constants } from "node:os";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { Assembler, type Label, type StackSlot } from "../asm/assembler.ts";
import type { Program } from "../asm/program.ts";
import { SOCK } from "../contexts.ts";
import { type Field, u32 } from "../layout.ts";
import { demandValid, lookUp } from "./map-calls.ts";
import { type BalancerMaps, FRONTEND_KEY } from "./maps.ts";
import {
  CONTEXT,
  contextFor,
  familyOfKind,
  loadCookie,
  MAPPED_WORD,
  type ProgramForm,
  programName,
  type SocketKind,
  sayReturnValue,
} from "./socket-kind.ts";

const { EADDRINUSE } = constants.errno;

/** The protocol, over calls. */
const PROTOCOL = "r9";

interface HoldOptions {
  /** @default "attached" */
  readonly form?: ProgramForm;
  /** Of the host's network namespace: sockets of others are left alone. */
  readonly hostCookie: bigint;
  /** Whether the kernel lets a program say EADDRINUSE; if not, bind() fails with EPERM. @default true */
  readonly canSetReturnValue?: boolean;
}

const WORDS6: readonly Field[] = [0, 4, 8, 12].map((at) => u32(SOCK.fields.sourceIp6.at + at));
/** Where the address is that a socket is bound to. */
const SOURCE_WORDS: Readonly<Record<SocketKind, readonly Field[]>> = {
  IPv4: [u32(SOCK.fields.sourceIp4.at)],
  IPv6: WORDS6,
  mapped: WORDS6.slice(3),
};

/**
 * @param kind `mapped`: an IPv6 socket at `::`, which gets what comes over IPv4 as well, or at `::ffff:a.b.c.d`.
 * @param maps of IPv6 for `IPv6`, else of IPv4.
 */
export function holdProgram(
  kind: SocketKind,
  maps: BalancerMaps,
  { form = "attached", hostCookie, canSetReturnValue = true }: HoldOptions,
): Program {
  const a = new Assembler(programName("bind", kind), contextFor("bind", kind, form));
  const [allow, refuse] = [a.label("allow"), a.label("refuse")];
  const { fields, size } = FRONTEND_KEY[familyOfKind(kind)];
  const key = a.slot("bound", size);
  a.mov(CONTEXT, "r1");
  demandProtocol(a, allow);
  loadCookie(a, form, "netns");
  a.loadWide("r1", hostCookie);
  a.jumpIf("r0", "!=", "r1", allow);
  a.clear(key);
  // A number of the host's here, and not as in packets.
  a.load("r1", CONTEXT, SOCK.fields.sourcePort);
  a.byteOrder("be", 16, "r1");
  a.store("r10", fields.port, "r1", key.offset);
  a.store("r10", fields.protocol, PROTOCOL, key.offset);
  // Without an address it is a node port.
  lookUp(a, maps.frontends, key);
  a.jumpIf("r0", "==", 0, allow);
  demandValid(a, maps.validUntil, a.slot("validity", 16), allow);
  if (kind === "mapped") demandIPv4(a, allow, refuse);
  takeAddress(a, kind, key, refuse);
  lookUp(a, maps.nodeAddresses, key);
  a.jumpIf("r0", "==", 0, allow);
  a.place(refuse);
  sayReturnValue(a, form, -EADDRINUSE, canSetReturnValue);
  a.mov("r0", 0);
  a.exit();
  a.place(allow);
  a.mov("r0", 1);
  a.exit();
  return a.finish();
}

function demandProtocol(a: Assembler, otherwise: Label): void {
  const isKnown = a.label("protocol");
  a.load(PROTOCOL, CONTEXT, SOCK.fields.protocol);
  a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, isKnown);
  a.jumpIf(PROTOCOL, "!=", PROTOCOL_NUMBERS.UDP, otherwise);
  a.place(isKnown);
}

/** `::` has it all, and `::ffff:a.b.c.d` goes on. */
function demandIPv4(a: Assembler, otherwise: Label, unspecified: Label): void {
  const isMapped = a.label("mapped");
  const [first, second, third, last] = WORDS6;
  for (const word of [first, second]) {
    if (word === undefined) continue;
    a.load("r1", CONTEXT, word);
    a.jumpIf("r1", "!=", 0, otherwise, 32);
  }
  if (third === undefined || last === undefined) return;
  a.load("r1", CONTEXT, third);
  a.jumpIf("r1", "==", MAPPED_WORD, isMapped, 32);
  a.jumpIf("r1", "!=", 0, otherwise, 32);
  a.load("r1", CONTEXT, last);
  a.jumpIf("r1", "==", 0, unspecified, 32);
  a.jump(otherwise);
  a.place(isMapped);
}

/** Copies the address that the socket is bound to; one that is bound to none has it all. */
function takeAddress(a: Assembler, kind: SocketKind, key: StackSlot, unspecified: Label): void {
  const { address } = FRONTEND_KEY[familyOfKind(kind)].fields;
  a.mov("r2", 0);
  for (const [index, word] of SOURCE_WORDS[kind].entries()) {
    a.load("r1", CONTEXT, word);
    a.store("r10", u32(address.at + 4 * index), "r1", key.offset);
    a.alu("or", "r2", "r1");
  }
  a.jumpIf("r2", "==", 0, unspecified);
}
