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
import { forgetConnected, registerConnected } from "./connected.ts";
import { demandValid, lookUp, update } from "./map-calls.ts";
import {
  BACKEND_IDENTITY_WORD,
  BACKEND_VALUE,
  type BalancerMaps,
  CHOICE_KEY,
  CHOICE_VALUE,
  CONNECTED_VALUE,
  EXTENT_WORD,
  FLOW_KEY,
  FLOW_VALUE,
  FLOWS_OF_SOCKET,
  FRONTEND_KEY,
  FRONTEND_VALUE,
  HELD,
  HOST_ONLY,
  IDENTITY_WORD,
  NO_ENDPOINTS,
  PEER_KEY,
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
const FLOW_NS = 120_000_000_000n;

/** A flow stays with a backend that is not offered any more, and with one of the service port's other list. */
const HELD_OR_SIBLING = Number(HELD) | 1;

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
  /** Whether the kernel lets a program say what the call fails with; if not, what would be refused is left to the packet path. @default true */
  readonly canSetReturnValue?: boolean;
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
  /** Key of the last choice. */
  readonly #client: StackSlot;
  readonly #choiceValue: StackSlot;
  /** The backend, as the socket will see it: a key of the peers. */
  readonly #peer: StackSlot;
  /** Of a UDP socket: a key of the flows, and its value. */
  readonly #flow: StackSlot;
  readonly #flowValue: StackSlot;
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
    this.#client = a.slot("client", CHOICE_KEY.size);
    this.#choiceValue = a.slot("choice value", CHOICE_VALUE.size);
    this.#peer = a.slot("peer", PEER_KEY[family].size);
    this.#flow = a.slot("flow", FLOW_KEY.size);
    this.#flowValue = a.slot("flow value", FLOW_VALUE[family].size);
    this.#connected = a.slot("connected", CONNECTED_VALUE[family].size);
  }

  assemble(): Program {
    const a = this.#a;
    a.mov(CONTEXT, "r1");
    this.#demandProtocol();
    if (this.#kind === "mapped") demandMapped(a, this.#pass);
    a.clear(this.#dialled);
    if (this.#options.isForHostOnly === true) this.#demandHost();
    this.#findFrontend();
    for (const slot of [this.#client, this.#choiceValue, this.#peer, this.#flow, this.#flowValue]) a.clear(slot);
    if (this.#call === "connect") a.clear(this.#connected);
    demandValid(a, this.#maps.validUntil, this.#choiceValue, this.#pass);
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
    if (this.#options.canSetReturnValue !== false) {
      a.place(this.#refuse);
      sayReturnValue(a, this.#form, -ECONNREFUSED, true);
      a.mov("r0", 0);
      a.exit();
    }
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
    const { fields, size } = FRONTEND_KEY[familyOfKind(this.#kind)];
    a.mov("r2", 0);
    for (const [index, word] of ADDRESS_WORDS[this.#kind].entries()) {
      a.load("r1", CONTEXT, word);
      a.store("r10", u32(fields.address.at + 4 * index), "r1", this.#dialled.offset);
      a.alu("or", "r2", "r1");
    }
    // The unspecified address is the client's own machine; in the map it stands for a node port.
    a.jumpIf("r2", "==", 0, this.#pass);
    // The word's lower half has the port's bytes as they are in packets.
    a.load("r1", CONTEXT, USER_PORT_WORD);
    a.store("r10", fields.port, "r1", this.#dialled.offset);
    a.store("r10", fields.protocol, PROTOCOL, this.#dialled.offset);
    lookUp(a, this.#maps.frontends, this.#dialled);
    if (this.#call === "connect") {
      const found = a.label("found");
      a.jumpIf("r0", "!=", 0, found);
      // A datagram to a node port may answer a client that has this source port: conntrack knows, and a socket does not.
      a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.UDP, this.#pass);
      lookUp(a, this.#maps.nodeAddresses, this.#dialled);
      a.jumpIf("r0", "==", 0, this.#pass);
      const nodePort = a.slot("node port", size);
      a.clear(nodePort);
      a.load("r1", CONTEXT, USER_PORT_WORD);
      a.store("r10", fields.port, "r1", nodePort.offset);
      a.store("r10", fields.protocol, PROTOCOL, nodePort.offset);
      lookUp(a, this.#maps.frontends, nodePort);
      a.jumpIf("r0", "==", 0, this.#pass);
      a.place(found);
    } else {
      a.jumpIf("r0", "==", 0, this.#pass);
    }
    a.load(EXTENT, "r0", EXTENT_WORD);
    a.load(IDENTITY, "r0", IDENTITY_WORD);
    a.load("r1", "r0", FRONTEND_VALUE.fields.affinitySeconds);
    a.store("r10", u64(0), "r1", this.#seconds.offset);
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
    const { canSetReturnValue = true } = this.#options;
    if (canSetReturnValue) a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, this.#refuse);
    a.jump(this.#pass);
    a.place(isServed);
  }

  /**
   * Leaves the backend's address in {@link #peer}, and notes the choice: a socket that sends stays with the one that it has had there
   * while that serves, and a client with session affinity while it is offered. Otherwise one is drawn.
   */
  #chooseBackend(): void {
    const a = this.#a;
    const { clients } = this.#maps;
    const [draw, chosen, isChosen] = [a.label("draw"), a.label("chosen"), a.label("is chosen")];
    const { cookie, id } = CHOICE_KEY.fields;
    if (this.#call === "sendmsg") {
      const isNew = a.label("new");
      this.#recallFlow(isNew);
      this.#takeBackend(isNew, HELD_OR_SIBLING);
      a.jump(isChosen);
      a.place(isNew);
    }
    a.load("r1", "r10", u64(0), this.#seconds.offset);
    a.jumpIf("r1", "==", 0, draw);
    loadCookie(a, this.#form, "netns");
    a.store("r10", cookie, "r0", this.#client.offset);
    a.store("r10", id, IDENTITY, this.#client.offset);
    this.#recallClient(draw);
    this.#takeBackend(draw);
    a.jump(chosen);
    a.place(draw);
    this.#draw();
    this.#takeBackend(this.#pass);
    a.place(chosen);
    a.load("r1", "r10", u64(0), this.#seconds.offset);
    a.jumpIf("r1", "==", 0, isChosen);
    const { backend, lastUsedNs } = CHOICE_VALUE.fields;
    a.call("ktime_get_ns");
    a.store("r10", lastUsedNs, "r0", this.#choiceValue.offset);
    a.load("r1", "r10", u32(0), this.#index.offset);
    a.store("r10", backend, "r1", this.#choiceValue.offset);
    update(a, clients, this.#client, this.#choiceValue);
    a.place(isChosen);
  }

  /** The client's last choice, if there is one that holds; its index is in {@link #index}. */
  #recallClient(none: Label): void {
    const a = this.#a;
    const { backend, lastUsedNs } = CHOICE_VALUE.fields;
    lookUp(a, this.#maps.clients, this.#client);
    a.jumpIf("r0", "==", 0, none);
    a.load("r1", "r0", backend);
    a.store("r10", u32(0), "r1", this.#index.offset);
    a.load("r1", "r0", lastUsedNs);
    a.store("r10", lastUsedNs, "r1", this.#choiceValue.offset);
    a.call("ktime_get_ns");
    a.load("r1", "r10", lastUsedNs, this.#choiceValue.offset);
    a.alu("sub", "r0", "r1");
    a.load("r2", "r10", u64(0), this.#seconds.offset);
    a.alu("mul", "r2", NS_PER_SECOND);
    a.jumpIf("r0", ">", "r2", none);
  }

  /** The same of the socket's flow to what was dialled. */
  #recallFlow(none: Label): void {
    const a = this.#a;
    const { backend, lastUsedNs } = FLOW_VALUE[familyOfKind(this.#kind)].fields;
    const isOwn = a.label("own flow");
    a.call("ktime_get_ns");
    a.store("r10", lastUsedNs, "r0", this.#flowValue.offset);
    loadCookie(a, this.#form, "socket");
    a.store("r10", FLOW_KEY.fields.cookie, "r0", this.#flow.offset);
    this.#eachFlow(none, isOwn, () => {});
    a.jump(none);
    a.place(isOwn);
    a.load("r1", "r0", backend);
    a.store("r10", u32(0), "r1", this.#index.offset);
    this.#jumpIfOld(none);
  }

  /** Leaves the element of a flow in r0, and its number in the key. @param other what to do with one to something else. */
  #eachFlow(isFree: Label, isOwn: Label, other: () => void): void {
    const a = this.#a;
    const { dialled, dialledPort } = FLOW_VALUE[familyOfKind(this.#kind)].fields;
    const { address, port } = FRONTEND_KEY[familyOfKind(this.#kind)].fields;
    for (let number = 0; number < FLOWS_OF_SOCKET; number++) {
      const isOther = a.label("other flow");
      a.store("r10", FLOW_KEY.fields.number, number, this.#flow.offset);
      lookUp(a, this.#maps.flows, this.#flow);
      a.jumpIf("r0", "==", 0, isFree);
      for (const word of ADDRESS_WORDS[this.#kind].keys()) {
        a.load("r1", "r0", u32(dialled.at + 4 * word));
        a.load("r2", "r10", u32(address.at + 4 * word), this.#dialled.offset);
        a.jumpIf("r1", "!=", "r2", isOther);
      }
      a.load("r1", "r0", dialledPort);
      a.load("r2", "r10", port, this.#dialled.offset);
      a.jumpIf("r1", "==", "r2", isOwn);
      a.place(isOther);
      other();
    }
  }

  /** Of the flow in r0; now is in {@link #flowValue}. */
  #jumpIfOld(isOld: Label): void {
    const a = this.#a;
    const { lastUsedNs } = FLOW_VALUE[familyOfKind(this.#kind)].fields;
    a.load("r1", "r10", lastUsedNs, this.#flowValue.offset);
    a.load("r2", "r0", lastUsedNs);
    a.alu("sub", "r1", "r2");
    a.loadWide("r2", FLOW_NS);
    a.jumpIf("r1", "s>", "r2", isOld);
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
   * @param besides bits of the id that need not be those of the frontend's list.
   */
  #takeBackend(otherwise: Label, besides = 0): void {
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
    if (besides === 0) a.jumpIf("r4", "!=", IDENTITY, otherwise, 32);
    else {
      a.alu("xor", "r4", IDENTITY, 32);
      a.alu("and", "r4", ~besides, 32);
      a.jumpIf("r4", "!=", 0, otherwise);
    }
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

  /** Under which address the socket knows the backend. */
  #remember(): void {
    const a = this.#a;
    const isWritten = a.label("written");
    loadCookie(a, this.#form, "socket");
    a.store("r10", PEER_KEY[familyOfKind(this.#kind)].fields.cookie, "r0", this.#peer.offset);
    if (this.#call === "connect") {
      const isUdp = a.label("udp");
      a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.UDP, isUdp);
      writeTcpPeer(a, this.#maps, this.#kind, this.#peer, this.#dialled, this.#index);
      a.jump(isWritten);
      a.place(isUdp);
    }
    this.#writeFlow();
    if (this.#call === "connect") {
      registerConnected({
        ...{ a, form: this.#form, kind: this.#kind, maps: this.#maps, pass: this.#pass },
        ...{ peer: this.#peer, index: this.#index, record: this.#connected },
        onlyOf: this.#options.connectedUdp === "host" ? this.#options.hostCookie : undefined,
      });
    }
    a.place(isWritten);
  }

  /** In the place of the flow to what was dialled; else in a free one, or in one of which no answer can come any more. */
  #writeFlow(): void {
    const a = this.#a;
    const { flows } = this.#maps;
    const [isFree, isOwn, isOld, isDone] = [a.label("free"), a.label("own"), a.label("old"), a.label("done")];
    const { fields, size } = FLOW_VALUE[familyOfKind(this.#kind)];
    this.#makeFlow();
    this.#eachFlow(isFree, isOwn, () => this.#jumpIfOld(isOld));
    a.jump(this.#pass);
    a.place(isOwn);
    a.load("r1", "r0", fields.backend);
    a.load("r2", "r10", fields.backend, this.#flowValue.offset);
    a.jumpIf("r1", "!=", "r2", isOld);
    for (let at = fields.address.at; at < size; at += 8) {
      a.load("r1", "r0", u64(at));
      a.load("r2", "r10", u64(at), this.#flowValue.offset);
      a.jumpIf("r1", "!=", "r2", isOld);
    }
    // The only word that differs is written in its place.
    a.load("r1", "r10", fields.lastUsedNs, this.#flowValue.offset);
    a.store("r0", fields.lastUsedNs, "r1");
    a.jump(isDone);
    a.place(isOld);
    update(a, flows, this.#flow, this.#flowValue);
    a.jumpIf("r0", "!=", 0, this.#pass);
    a.jump(isDone);
    a.place(isFree);
    // Another thread may have taken it for something else just now.
    update(a, flows, this.#flow, this.#flowValue, "create");
    a.jumpIf("r0", "!=", 0, this.#pass);
    a.place(isDone);
  }

  #makeFlow(): void {
    const a = this.#a;
    const family = familyOfKind(this.#kind);
    const [flow, peer, dialled] = [FLOW_VALUE[family].fields, PEER_KEY[family].fields, FRONTEND_KEY[family].fields];
    const { offset } = this.#flowValue;
    if (this.#call === "connect") {
      a.call("ktime_get_ns");
      a.store("r10", flow.lastUsedNs, "r0", offset);
    }
    a.load("r1", "r10", u32(0), this.#index.offset);
    a.store("r10", flow.backend, "r1", offset);
    for (const word of ADDRESS_WORDS[this.#kind].keys()) {
      a.load("r1", "r10", u32(peer.address.at + 4 * word), this.#peer.offset);
      a.store("r10", u32(flow.address.at + 4 * word), "r1", offset);
      a.load("r1", "r10", u32(dialled.address.at + 4 * word), this.#dialled.offset);
      a.store("r10", u32(flow.dialled.at + 4 * word), "r1", offset);
    }
    a.load("r1", "r10", peer.port, this.#peer.offset);
    a.store("r10", flow.port, "r1", offset);
    a.load("r1", "r10", dialled.port, this.#dialled.offset);
    a.store("r10", flow.dialledPort, "r1", offset);
    a.load("r1", "r10", peer.cookie, this.#peer.offset);
    a.store("r10", FLOW_KEY.fields.cookie, "r1", this.#flow.offset);
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
