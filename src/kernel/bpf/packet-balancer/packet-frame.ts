/** What the parts of the program for packets share: its registers, what it keeps on the stack, and a few steps. */
import type { IpFamily } from "../../../net/ip.ts";
import { Assembler, type Label, type StackSlot } from "../asm/assembler.ts";
import { FIB_LOOKUP, PACKET_CONTEXT } from "../contexts.ts";
import { be16, bytes, layout, u8, u32 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";
import { CHOICE_VALUE, FRONTEND_KEY } from "../socket-balancer/maps.ts";
import { HEADER, TRANSPORT } from "./headers.ts";
import { CLIENT_KEY, type PacketMapDefinitions } from "./maps.ts";

/** Registers that keep what they hold over calls. */
export const CONTEXT = "r6";
/** Base and count of the slots; later the entry of the connection. */
export const EXTENT = "r7";
export const ENTRY = "r7";
/** Id and flags of the frontend; later how long the entry may wait for its packet. */
export const IDENTITY = "r8";
export const TIMEOUT = "r8";
export const PROTOCOL = "r9";

const FROM_NETWORK_HEADER = 1;

/** `bpf_ct_opts`. */
export const ENTRY_OPTIONS = layout("bpf_ct_opts", 12, { network: u32(0), error: u32(4), protocol: u8(8) });
/** `bpf_sock_tuple`. */
export const TUPLE = {
  IPv4: layout("bpf_sock_tuple", 12, { source: bytes(0, 4), destination: bytes(4, 4), ports: u32(8) }),
  IPv6: layout("bpf_sock_tuple", 36, { source: bytes(0, 16), destination: bytes(16, 16), ports: u32(32) }),
} as const;
/** Where an end of the connection is to be: `nf_inet_addr`, and a port. */
export const PLACE = layout("place", 24, { address: bytes(0, 16), port: be16(16) });

export class PacketFrame {
  readonly a: Assembler;
  readonly family: IpFamily;
  readonly maps: PacketMapDefinitions;
  /** The packet goes on as it came. */
  readonly pass: Label;
  readonly header: StackSlot;
  readonly transport: StackSlot;
  /** What is asked for: a key of the frontends. */
  readonly asked: StackSlot;
  /** An index of an array. */
  readonly index: StackSlot;
  /** For how long a choice holds; 0: it does not. */
  readonly seconds: StackSlot;
  /** Who asks: a key of the clients. */
  readonly client: StackSlot;
  readonly choice: StackSlot;
  /** A {@link PLACE}: which backend was chosen. */
  readonly backend: StackSlot;
  /** A {@link PLACE}: what the backend sees. */
  readonly source: StackSlot;
  readonly tuple: StackSlot;
  readonly options: StackSlot;
  readonly route: StackSlot;

  constructor(family: IpFamily, maps: PacketMapDefinitions) {
    const a = new Assembler(`kpts_packet${family.slice(3)}`, PACKET_CONTEXT);
    this.a = a;
    this.family = family;
    this.maps = maps;
    this.pass = a.label("pass");
    this.header = a.slot("header", HEADER[family].size);
    this.transport = a.slot("transport", TRANSPORT.size);
    this.asked = a.slot("asked", FRONTEND_KEY[family].size);
    this.index = a.slot("index", 4);
    this.seconds = a.slot("seconds", 8);
    this.client = a.slot("client", CLIENT_KEY[family].size);
    this.choice = a.slot("choice", CHOICE_VALUE.size);
    this.backend = a.slot("backend", PLACE.size);
    this.source = a.slot("source", PLACE.size);
    this.tuple = a.slot("tuple", TUPLE[family].size);
    this.options = a.slot("options", ENTRY_OPTIONS.size);
    this.route = a.slot("route", FIB_LOOKUP.size);
  }

  /** Zeroes in what is not written as a whole. */
  clear(): void {
    for (const slot of [this.asked, this.client, this.choice, this.backend, this.source]) this.a.clear(slot);
    for (const slot of [this.tuple, this.options, this.route]) this.a.clear(slot);
  }

  /** A packet that is too short passes. */
  loadBytes(at: number, to: StackSlot, size: number): void {
    const a = this.a;
    a.mov("r1", CONTEXT);
    a.mov("r2", at);
    a.addressOf("r3", to);
    a.mov("r4", size);
    a.mov("r5", FROM_NETWORK_HEADER);
    a.call("skb_load_bytes_relative");
    a.jumpIf("r0", "!=", 0, this.pass);
  }

  /** As many bytes as the first field has. */
  copy(from: StackSlot, field: { at: number; bytes: number }, to: StackSlot, target: { at: number }): void {
    const a = this.a;
    for (let at = 0; at < field.bytes; at += 4) {
      a.load("r1", "r10", u32(field.at + at), from.offset);
      a.store("r10", u32(target.at + at), "r1", to.offset);
    }
  }

  /** What a map has; the result is in r0. */
  lookup(map: MapDefinition, key: StackSlot): void {
    const a = this.a;
    a.loadMap("r1", map);
    a.addressOf("r2", key);
    a.call("map_lookup_elem");
  }
}
