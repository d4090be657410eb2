/**
 * The programs that run when a socket connects or sends a datagram to an address: a frontend's address is replaced by that of one of its
 * backends, before a route is looked up. Everything else passes unchanged, and is left to the packet path (reference ebpf.md §1.1,
 * §1.4 to §1.6).
 */
import { constants } from "node:os";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { Assembler, type Label, type StackSlot } from "../asm/assembler.ts";
import type { Program } from "../asm/program.ts";
import { SOCK_ADDR, USER_PORT_WORD } from "../contexts.ts";
import { u32, u64 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";
import { forgetConnected, registerConnected } from "./connected.ts";
import { lookUp, update } from "./map-calls.ts";
import {
  BACKEND_IDENTITY_WORD,
  BACKEND_VALUE,
  type BalancerMaps,
  CHOICE_KEY,
  CHOICE_VALUE,
  CONNECTED_VALUE,
  EXTENT_WORD,
  FRONTEND_KEY,
  FRONTEND_VALUE,
  HOST_ONLY,
  IDENTITY_WORD,
  NO_ENDPOINTS,
  PEER_KEY,
  PEER_VALUE,
  SLOT_VALUE,
} from "./maps.ts";
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
  sayReturnValue,
} from "./socket-kind.ts";
import { writeTcpPeer } from "./tcp-peers.ts";

const { ECONNREFUSED } = constants.errno;
const NS_PER_SECOND = 1_000_000_000;
/** How long a socket's datagrams go to one backend after the last of them: as long as conntrack would remember. */
const FLOW_SECONDS = 120;

/** Registers that keep what they hold over calls. */
const EXTENT = "r7";
const IDENTITY = "r8";
const PROTOCOL = "r9";

export interface LeadOptions {
  /** @default "attached" */
  readonly form?: ProgramForm;
  /** Of which protocols sockets are looked at; of `sendmsg` it can only be UDP. @default TCP and UDP */
  readonly protocols?: readonly ("TCP" | "UDP")[];
  /** Of the host's network namespace: for frontends that are for its clients only. */
  readonly hostCookie: bigint;
  /** All other clients are left to the packet path. @default false */
  readonly isForHostOnly?: boolean;
  /** Connected UDP sockets of which network namespaces can be told when their backend goes: only these are led. @default "all" */
  readonly connectedUdp?: "all" | "host";
}

/** @param maps of IPv6 for `IPv6`, else of IPv4. */
export function leadProgram(
  call: "connect" | "sendmsg",
  kind: SocketKind,
  maps: BalancerMaps,
  options: LeadOptions,
): Program {
  return new LeadProgram(call, kind, maps, options).assemble();
}

class LeadProgram {
  readonly #a: Assembler;
  readonly #call: "connect" | "sendmsg";
  readonly #kind: SocketKind;
  readonly #maps: BalancerMaps;
  readonly #options: LeadOptions;
  readonly #form: ProgramForm;
  readonly #pass: Label;
  readonly #refuse: Label;
  /** What was dialled: a key of `frontends`. */
  readonly #dialled: StackSlot;
  /** An index of an array. */
  readonly #index: StackSlot;
  /** Seconds for which a choice holds. */
  readonly #seconds: StackSlot;
  readonly #choice: StackSlot;
  readonly #choiceValue: StackSlot;
  /** The backend, as the socket will see it: a key of the peers. */
  readonly #peer: StackSlot;
  readonly #peerValue: StackSlot;
  /** Of a UDP socket that connects. */
  readonly #connected: StackSlot;

  constructor(call: "connect" | "sendmsg", kind: SocketKind, maps: BalancerMaps, options: LeadOptions) {
    const { form = "attached" } = options;
    const a = new Assembler(programName(call, kind), contextFor(call, kind, form));
    this.#a = a;
    this.#call = call;
    this.#kind = kind;
    this.#maps = maps;
    this.#options = options;
    this.#form = form;
    this.#pass = a.label("pass");
    this.#refuse = a.label("refuse");
    const family = familyOfKind(kind);
    this.#dialled = a.slot("dialled", FRONTEND_KEY[family].size);
    this.#index = a.slot("index", 4);
    this.#seconds = a.slot("seconds", 8);
    this.#choice = a.slot("choice", CHOICE_KEY.size);
    this.#choiceValue = a.slot("choice value", CHOICE_VALUE.size);
    this.#peer = a.slot("peer", PEER_KEY[family].size);
    this.#peerValue = a.slot("peer value", PEER_VALUE[family].size);
    this.#connected = a.slot("connected", CONNECTED_VALUE[family].size);
  }

  assemble(): Program {
    const a = this.#a;
    a.mov(CONTEXT, "r1");
    this.#demandProtocol();
    if (this.#kind === "mapped") demandMapped(a, this.#pass);
    for (const slot of [this.#dialled, this.#choice, this.#choiceValue, this.#peer, this.#peerValue]) a.clear(slot);
    if (this.#call === "connect") a.clear(this.#connected);
    if (this.#options.isForHostOnly === true) this.#demandHost();
    this.#findFrontend();
    this.#obeyFlags();
    this.#chooseBackend();
    this.#remember();
    this.#rewrite();
    a.mov("r0", 1);
    a.exit();
    a.place(this.#pass);
    if (this.#call === "connect") forgetConnected(a, this.#form, PROTOCOL, this.#maps, this.#peer);
    a.mov("r0", 1);
    a.exit();
    a.place(this.#refuse);
    sayReturnValue(a, this.#form, -ECONNREFUSED);
    a.mov("r0", 0);
    a.exit();
    return a.finish();
  }

  /** Ping sockets and UDP-Lite run the same hooks. */
  #demandProtocol(): void {
    const a = this.#a;
    const isKnown = a.label("protocol");
    const { protocols = ["TCP", "UDP"] } = this.#options;
    a.load(PROTOCOL, CONTEXT, SOCK_ADDR.fields.protocol);
    for (const protocol of protocols) a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS[protocol], isKnown);
    a.jump(this.#pass);
    a.place(isKnown);
  }

  #demandHost(): void {
    const a = this.#a;
    loadCookie(a, this.#form, "netns");
    a.loadWide("r1", this.#options.hostCookie);
    a.jumpIf("r0", "!=", "r1", this.#pass);
  }

  /** Leaves the frontend's words in {@link EXTENT} and {@link IDENTITY}: its element may be used for another at any time. */
  #findFrontend(): void {
    const a = this.#a;
    const { fields } = FRONTEND_KEY[familyOfKind(this.#kind)];
    const found = a.label("found");
    const words = ADDRESS_WORDS[this.#kind];
    const addressAt = (index: number) => u32(fields.address.at + 4 * index);
    for (const [index, word] of words.entries()) {
      a.load("r1", CONTEXT, word);
      a.store("r10", addressAt(index), "r1", this.#dialled.offset);
    }
    // The word's lower half has the port's bytes as they are in packets.
    a.load("r1", CONTEXT, USER_PORT_WORD);
    a.store("r10", fields.port, "r1", this.#dialled.offset);
    a.store("r10", fields.protocol, PROTOCOL, this.#dialled.offset);
    lookUp(this.#a, this.#maps.frontends, this.#dialled);
    a.jumpIf("r0", "!=", 0, found);
    // A node port has no address of its own: it is looked up without one, and then the address among the node's.
    for (const index of words.keys()) a.store("r10", addressAt(index), 0, this.#dialled.offset);
    lookUp(this.#a, this.#maps.frontends, this.#dialled);
    a.jumpIf("r0", "==", 0, this.#pass);
    a.load(EXTENT, "r0", EXTENT_WORD);
    a.load(IDENTITY, "r0", IDENTITY_WORD);
    a.load("r1", "r0", FRONTEND_VALUE.fields.affinitySeconds);
    a.store("r10", u64(0), "r1", this.#seconds.offset);
    for (const [index, word] of words.entries()) {
      a.load("r1", CONTEXT, word);
      a.store("r10", addressAt(index), "r1", this.#dialled.offset);
    }
    lookUp(this.#a, this.#maps.nodeAddresses, this.#dialled);
    a.jumpIf("r0", "==", 0, this.#pass);
    const known = a.label("known");
    a.jump(known);
    a.place(found);
    a.load(EXTENT, "r0", EXTENT_WORD);
    a.load(IDENTITY, "r0", IDENTITY_WORD);
    a.load("r1", "r0", FRONTEND_VALUE.fields.affinitySeconds);
    a.store("r10", u64(0), "r1", this.#seconds.offset);
    a.place(known);
  }

  #obeyFlags(): void {
    const a = this.#a;
    const [isForAll, isServed] = [a.label("all"), a.label("served")];
    a.mov("r1", IDENTITY);
    a.alu("rsh", "r1", 32);
    a.jumpIf("r1", "==", 0, isServed);
    a.jumpIf("r1", "!=", HOST_ONLY, isForAll);
    this.#demandHost();
    a.jump(isServed);
    a.place(isForAll);
    a.jumpIf("r1", "!=", NO_ENDPOINTS, this.#pass);
    a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, this.#refuse);
    a.jump(this.#pass);
    a.place(isServed);
  }

  /** Leaves the backend's address in {@link #peer}: the one that the client had, or one of all. */
  #chooseBackend(): void {
    const a = this.#a;
    const [choose, chosen] = [a.label("choose"), a.label("chosen")];
    this.#recall(choose);
    this.#takeBackend(choose);
    a.jump(chosen);
    a.place(choose);
    this.#draw();
    this.#takeBackend(this.#pass);
    a.place(chosen);
  }

  /** The client's last choice, if there is one that holds; its index is in {@link #index}. */
  #recall(none: Label): void {
    const a = this.#a;
    const { clients, flows } = this.#maps;
    const [hasAffinity, hasKey, hasValue] = [a.label("affinity"), a.label("key"), a.label("value")];
    const { cookie, id } = CHOICE_KEY.fields;
    a.load("r1", "r10", u64(0), this.#seconds.offset);
    a.jumpIf("r1", "!=", 0, hasAffinity);
    if (this.#call === "connect") {
      a.jump(none);
    } else {
      loadCookie(a, this.#form, "socket");
      a.store("r10", cookie, "r0", this.#choice.offset);
      a.store("r10", id, IDENTITY, this.#choice.offset);
      lookUp(this.#a, flows, this.#choice);
      a.jumpIf("r0", "==", 0, none);
      a.load("r1", "r0", CHOICE_VALUE.fields.backend);
      a.load("r2", "r0", CHOICE_VALUE.fields.lastUsedNs);
      a.mov("r3", FLOW_SECONDS);
      a.store("r10", u64(0), "r3", this.#peer.offset);
      a.jump(hasKey);
    }
    a.place(hasAffinity);
    loadCookie(a, this.#form, "netns");
    a.store("r10", cookie, "r0", this.#choice.offset);
    a.store("r10", id, IDENTITY, this.#choice.offset);
    lookUp(this.#a, clients, this.#choice);
    a.jumpIf("r0", "==", 0, none);
    a.load("r1", "r0", CHOICE_VALUE.fields.backend);
    a.load("r2", "r0", CHOICE_VALUE.fields.lastUsedNs);
    a.load("r3", "r10", u64(0), this.#seconds.offset);
    a.store("r10", u64(0), "r3", this.#peer.offset);
    a.place(hasKey);
    a.store("r10", u32(0), "r1", this.#index.offset);
    a.store("r10", u64(0), "r2", this.#peerValue.offset);
    a.call("ktime_get_ns");
    a.load("r2", "r10", u64(0), this.#peerValue.offset);
    a.alu("sub", "r0", "r2");
    a.load("r3", "r10", u64(0), this.#peer.offset);
    a.alu("mul", "r3", NS_PER_SECOND);
    a.jumpIf("r0", "<=", "r3", hasValue);
    a.jump(none);
    a.place(hasValue);
  }

  /** Slot `base + (random × count >> 32)`. */
  #draw(): void {
    const a = this.#a;
    a.call("get_prandom_u32");
    a.mov("r1", EXTENT);
    a.alu("rsh", "r1", 32);
    a.jumpIf("r1", "==", 0, this.#pass);
    a.mov("r0", "r0", 32);
    a.alu("mul", "r0", "r1");
    a.alu("rsh", "r0", 32);
    a.alu("add", "r0", EXTENT, 32);
    a.store("r10", u32(0), "r0", this.#index.offset);
    lookUp(this.#a, this.#maps.slots, this.#index);
    a.jumpIf("r0", "==", 0, this.#pass);
    a.load("r1", "r0", SLOT_VALUE.fields.backend);
    a.store("r10", u32(0), "r1", this.#index.offset);
  }

  /**
   * A backend that carries another id was given to another service port meanwhile. Its identity is read before the address and after
   * it: a writer takes the identity away first and gives the new one last, so that what lies between two equal ones belongs to it.
   */
  #takeBackend(otherwise: Label): void {
    const a = this.#a;
    const family = familyOfKind(this.#kind);
    const { address, port } = BACKEND_VALUE[family].fields;
    const identity = BACKEND_IDENTITY_WORD[family];
    const peer = PEER_KEY[family].fields;
    lookUp(this.#a, this.#maps.backends, this.#index);
    a.jumpIf("r0", "==", 0, otherwise);
    a.load("r5", "r0", identity);
    a.load("r1", "r0", u64(address.at));
    if (family === "IPv6") {
      a.load("r2", "r0", u64(address.at + 8));
      a.load("r3", "r0", port);
    }
    a.load("r4", "r0", identity);
    a.jumpIf("r4", "!=", "r5", otherwise);
    a.jumpIf("r4", "!=", IDENTITY, otherwise, 32);
    if (this.#call === "connect") a.store("r10", CONNECTED_VALUE[family].fields.identity, "r4", this.#connected.offset);
    if (family === "IPv4") {
      // Address and port in one word; what follows them there is 0.
      a.store("r10", u64(peer.address.at), "r1", this.#peer.offset);
    } else {
      a.store("r10", u64(peer.address.at), "r1", this.#peer.offset);
      a.store("r10", u64(peer.address.at + 8), "r2", this.#peer.offset);
      a.store("r10", peer.port, "r3", this.#peer.offset);
    }
  }

  /** The choice, where one holds, and under which address the socket knows the backend. What cannot be written is forgotten. */
  #remember(): void {
    const a = this.#a;
    const family = familyOfKind(this.#kind);
    const { clients, flows, udpPeers } = this.#maps;
    const { backend, lastUsedNs } = CHOICE_VALUE.fields;
    const [byNamespace, isKept] = [a.label("namespace"), a.label("kept")];
    const writeChoice = (map: MapDefinition): void => {
      a.call("ktime_get_ns");
      a.store("r10", lastUsedNs, "r0", this.#choiceValue.offset);
      a.load("r1", "r10", u32(0), this.#index.offset);
      a.store("r10", backend, "r1", this.#choiceValue.offset);
      update(this.#a, map, this.#choice, this.#choiceValue);
    };
    a.load("r1", "r10", u64(0), this.#seconds.offset);
    a.jumpIf("r1", "!=", 0, byNamespace);
    if (this.#call === "sendmsg") writeChoice(flows);
    a.jump(isKept);
    a.place(byNamespace);
    writeChoice(clients);
    a.place(isKept);
    loadCookie(a, this.#form, "socket");
    a.store("r10", PEER_KEY[family].fields.cookie, "r0", this.#peer.offset);
    const [isUdp, isWritten] = [a.label("udp"), a.label("written")];
    if (this.#call === "connect") {
      a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.UDP, isUdp);
      writeTcpPeer(a, this.#maps, this.#kind, this.#peer, this.#dialled, this.#index);
      a.jump(isWritten);
      a.place(isUdp);
    }
    const { address, port } = FRONTEND_KEY[family].fields;
    for (const index of ADDRESS_WORDS[this.#kind].keys()) {
      a.load("r1", "r10", u32(address.at + 4 * index), this.#dialled.offset);
      a.store("r10", u32(PEER_VALUE[family].fields.address.at + 4 * index), "r1", this.#peerValue.offset);
    }
    a.load("r1", "r10", port, this.#dialled.offset);
    // The slot has held something else, behind the port as well.
    a.store("r10", u32(PEER_VALUE[family].fields.port.at), "r1", this.#peerValue.offset);
    if (this.#call === "connect") {
      registerConnected({
        ...{ a, form: this.#form, kind: this.#kind, maps: this.#maps, pass: this.#pass },
        ...{ peer: this.#peer, index: this.#index, record: this.#connected },
        onlyOf: this.#options.connectedUdp === "host" ? this.#options.hostCookie : undefined,
      });
    }
    update(this.#a, udpPeers, this.#peer, this.#peerValue);
    a.place(isWritten);
  }

  #rewrite(): void {
    const a = this.#a;
    const { address, port } = PEER_KEY[familyOfKind(this.#kind)].fields;
    for (const [index, word] of ADDRESS_WORDS[this.#kind].entries()) {
      a.load("r1", "r10", u32(address.at + 4 * index), this.#peer.offset);
      a.store(CONTEXT, word, "r1");
    }
    a.load("r1", "r10", port, this.#peer.offset);
    a.store(CONTEXT, USER_PORT_WORD, "r1");
  }
}
