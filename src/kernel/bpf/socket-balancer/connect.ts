/**
 * The program that runs when a socket connects: a frontend's address is replaced by that of one of its backends, before a route is
 * looked up. Everything else passes unchanged, and is left to the packet path (reference ebpf.md §1.1, §1.5).
 */
import { constants } from "node:os";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { Assembler, type Label } from "../asm/assembler.ts";
import type { Program } from "../asm/program.ts";
import { type ContextRules, connectContext, type Hook, memoryContext, SOCK_ADDR, USER_PORT_WORD } from "../contexts.ts";
import { type Field, u32, u64 } from "../layout.ts";
import {
  BACKEND_IDENTITY_WORD,
  BACKEND_VALUE,
  type BalancerMaps,
  EXTENT_WORD,
  FRONTEND_KEY,
  IDENTITY_WORD,
  NO_ENDPOINTS,
  SLOT_VALUE,
} from "./maps.ts";

const { ECONNREFUSED } = constants.errno;
/** The third word of `::ffff:a.b.c.d` as a little-endian host reads it; as an immediate it has a sign. */
const MAPPED_WORD = 0xffff0000 | 0;

/**
 * Which sockets, and which maps: IPv4 sockets, IPv6 sockets, or IPv6 sockets that connect to `::ffff:a.b.c.d`. The last two share a
 * hook, and leave each other's addresses alone.
 */
export type ConnectKind = "IPv4" | "IPv6" | "mapped";

/** How a program is to refuse: by the helper, or for a test by a word after the context, which the kernel lets tests run. */
export type ConnectForm = "attached" | "test";

export const CONNECT_HOOKS: Readonly<Record<ConnectKind, Hook>> = {
  IPv4: "connect4",
  IPv6: "connect6",
  mapped: "connect6",
};

/** The context of the `test` form: {@link SOCK_ADDR}, then the socket's return value. */
export const TEST_CONTEXT = { name: "connect test", size: 96 };
export const TEST_RETURN_VALUE: Field = u32(88);

const ADDRESS_WORDS: Readonly<Record<ConnectKind, readonly Field[]>> = {
  IPv4: [u32(SOCK_ADDR.fields.userIp4.at)],
  IPv6: [0, 4, 8, 12].map((at) => u32(SOCK_ADDR.fields.userIp6.at + at)),
  mapped: [u32(SOCK_ADDR.fields.userIp6.at + 12)],
};

/** Registers that keep what they hold over calls. */
const CONTEXT = "r6";
const EXTENT = "r7";
const IDENTITY = "r8";
const PROTOCOL = "r9";

export interface ConnectOptions {
  /** @default "attached" */
  readonly form?: ConnectForm;
  /** Of which protocols connections are looked at. @default TCP and UDP */
  readonly protocols?: readonly ("TCP" | "UDP")[];
}

/** @param maps of IPv6 for `IPv6`, else of IPv4. */
export function connectProgram(
  kind: ConnectKind,
  maps: BalancerMaps,
  { form = "attached", protocols = ["TCP", "UDP"] }: ConnectOptions = {},
): Program {
  const context: ContextRules = form === "test" ? memoryContext(TEST_CONTEXT) : connectContext(CONNECT_HOOKS[kind]);
  const a = new Assembler(kind === "mapped" ? "kpts_mapped4" : `kpts_connect${kind.slice(3)}`, context);
  const pass = a.label("pass");
  const refuse = a.label("refuse");
  a.mov(CONTEXT, "r1");
  demandProtocol(a, protocols, pass);
  if (kind === "mapped") demandMapped(a, pass);
  findFrontend(a, kind, maps, pass);
  demandEndpoints(a, pass, refuse);
  chooseBackend(a, maps, pass);
  rewrite(a, kind, pass);
  a.place(pass);
  a.mov("r0", 1);
  a.exit();
  a.place(refuse);
  sayRefused(a, form);
  a.mov("r0", 0);
  a.exit();
  return a.finish();
}

/** Ping sockets and UDP-Lite run the same hook. */
function demandProtocol(a: Assembler, protocols: readonly ("TCP" | "UDP")[], pass: Label): void {
  const isKnown = a.label("protocol");
  a.load(PROTOCOL, CONTEXT, SOCK_ADDR.fields.protocol);
  for (const protocol of protocols) a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS[protocol], isKnown);
  a.jump(pass);
  a.place(isKnown);
}

function demandMapped(a: Assembler, pass: Label): void {
  const words = [0, 0, MAPPED_WORD];
  for (const [index, expected] of words.entries()) {
    a.load("r1", CONTEXT, u32(SOCK_ADDR.fields.userIp6.at + 4 * index));
    a.jumpIf("r1", "!=", expected, pass, 32);
  }
}

/** Leaves the frontend's words in {@link EXTENT} and {@link IDENTITY}: its element may be reused at any time. */
function findFrontend(a: Assembler, kind: ConnectKind, maps: BalancerMaps, pass: Label): void {
  const { fields, size } = FRONTEND_KEY[kind === "IPv6" ? "IPv6" : "IPv4"];
  const key = a.slot("frontend", size);
  a.clear(key);
  for (const [index, word] of ADDRESS_WORDS[kind].entries()) {
    a.load("r1", CONTEXT, word);
    a.store("r10", u32(fields.address.at + 4 * index), "r1", key.offset);
  }
  // The word's lower half has the port's bytes as they are in packets.
  a.load("r1", CONTEXT, USER_PORT_WORD);
  a.store("r10", fields.port, "r1", key.offset);
  a.store("r10", fields.protocol, PROTOCOL, key.offset);
  a.loadMap("r1", maps.frontends);
  a.addressOf("r2", key);
  a.call("map_lookup_elem");
  a.jumpIf("r0", "==", 0, pass);
  a.load(EXTENT, "r0", EXTENT_WORD);
  a.load(IDENTITY, "r0", IDENTITY_WORD);
}

function demandEndpoints(a: Assembler, pass: Label, refuse: Label): void {
  const isServed = a.label("served");
  a.mov("r1", IDENTITY);
  a.alu("rsh", "r1", 32);
  a.jumpIf("r1", "==", 0, isServed);
  a.jumpIf("r1", "!=", NO_ENDPOINTS, pass);
  a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, refuse);
  a.jump(pass);
  a.place(isServed);
}

/** Leaves a pointer to the backend in r0: slot `base + (random × count >> 32)`, and the backend that it names. */
function chooseBackend(a: Assembler, maps: BalancerMaps, pass: Label): void {
  const index = a.slot("index", 4);
  const at = u32(0);
  a.call("get_prandom_u32");
  a.mov("r1", EXTENT);
  a.alu("rsh", "r1", 32);
  a.jumpIf("r1", "==", 0, pass);
  a.mov("r0", "r0", 32);
  a.alu("mul", "r0", "r1");
  a.alu("rsh", "r0", 32);
  a.alu("add", "r0", EXTENT, 32);
  a.store("r10", at, "r0", index.offset);
  a.loadMap("r1", maps.slots);
  a.addressOf("r2", index);
  a.call("map_lookup_elem");
  a.jumpIf("r0", "==", 0, pass);
  a.load("r1", "r0", SLOT_VALUE.fields.backend);
  a.store("r10", at, "r1", index.offset);
  a.loadMap("r1", maps.backends);
  a.addressOf("r2", index);
  a.call("map_lookup_elem");
  a.jumpIf("r0", "==", 0, pass);
}

/**
 * A backend that carries another id was given to another service port meanwhile. Its identity is read before the address and after
 * it: a writer takes the identity away first and gives the new one last, so that what lies between two equal ones belongs to it.
 */
function rewrite(a: Assembler, kind: ConnectKind, pass: Label): void {
  const family = kind === "IPv6" ? "IPv6" : "IPv4";
  const { address, port } = BACKEND_VALUE[family].fields;
  const identity = BACKEND_IDENTITY_WORD[family];
  a.load("r5", "r0", identity);
  if (family === "IPv4") {
    // Address and port in one load.
    a.load("r1", "r0", u64(address.at));
  } else {
    a.load("r1", "r0", u64(address.at));
    a.load("r2", "r0", u64(address.at + 8));
    a.load("r3", "r0", port);
  }
  a.load("r4", "r0", identity);
  a.jumpIf("r4", "!=", "r5", pass);
  a.jumpIf("r4", "!=", IDENTITY, pass, 32);
  if (family === "IPv4") {
    a.mov("r2", "r1", 32);
    for (const word of ADDRESS_WORDS[kind]) a.store(CONTEXT, word, "r2");
    a.alu("rsh", "r1", 32);
    a.alu("and", "r1", 0xffff);
    a.store(CONTEXT, USER_PORT_WORD, "r1");
  } else {
    a.store(CONTEXT, u64(SOCK_ADDR.fields.userIp6.at), "r1");
    a.store(CONTEXT, u64(SOCK_ADDR.fields.userIp6.at + 8), "r2");
    a.store(CONTEXT, USER_PORT_WORD, "r3");
  }
}

/** Never without: the kernel's own answer would be EPERM, which clients take for a policy. */
function sayRefused(a: Assembler, form: ConnectForm): void {
  a.mov("r1", -ECONNREFUSED);
  if (form === "attached") a.call("set_retval");
  else a.store(CONTEXT, TEST_RETURN_VALUE, "r1");
}
