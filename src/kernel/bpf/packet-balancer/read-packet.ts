/** Which packets the program looks at, and their headers. */
import type { Cidr } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { PACKET } from "../contexts.ts";
import { type Field, u32 } from "../layout.ts";
import * as headers from "./headers.ts";
import { CONTEXT, type PacketFrame, PROTOCOL } from "./packet-frame.ts";

const { HEADER, TRANSPORT } = headers;

/** To this machine, of the family, of no VLAN, and without a mark, which may lead it another way. */
export function demandPlainPacket(frame: PacketFrame): void {
  const { a } = frame;
  const wanted: readonly (readonly [Field, number])[] = [
    [PACKET.fields.protocol, headers.ETHERNET_TYPES[frame.family]],
    [PACKET.fields.packetType, 0],
    [PACKET.fields.hasVlan, 0],
    [PACKET.fields.mark, 0],
  ];
  for (const [field, value] of wanted) {
    a.load("r1", CONTEXT, field);
    a.jumpIf("r1", "!=", value, frame.pass);
  }
}

/** Goes on with datagrams, and with the first packet of TCP connections. */
export function loadHeaders(frame: PacketFrame): void {
  const { a } = frame;
  const { size, fields } = HEADER[frame.family];
  const [isUdp, isLoaded] = [a.label("udp"), a.label("loaded")];
  frame.loadBytes(0, frame.header, size);
  if ("fragment" in fields) {
    a.load("r1", "r10", fields.versionAndLength, frame.header.offset);
    a.jumpIf("r1", "!=", headers.PLAIN_IPV4, frame.pass);
    a.load("r1", "r10", fields.fragment, frame.header.offset);
    a.jumpIf("r1", "&", headers.FRAGMENT_BITS, frame.pass);
  }
  a.load(PROTOCOL, "r10", fields.protocol, frame.header.offset);
  a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.UDP, isUdp);
  a.jumpIf(PROTOCOL, "!=", PROTOCOL_NUMBERS.TCP, frame.pass);
  frame.loadBytes(size, frame.transport, TRANSPORT.size);
  a.load("r1", "r10", TRANSPORT.fields.flags, frame.transport.offset);
  a.alu("and", "r1", headers.TCP_FLAGS);
  a.jumpIf("r1", "!=", headers.TCP_SYN, frame.pass);
  a.jump(isLoaded);
  a.place(isUdp);
  frame.loadBytes(size, frame.transport, headers.UDP_HEADER_BYTES);
  a.place(isLoaded);
}

/** Packets from here go on. */
export function passPods(frame: PacketFrame, range: Cidr): void {
  const { a } = frame;
  const isOther = a.label("other");
  for (const { at, mask, value } of headers.maskedWords(range)) {
    a.load("r1", "r10", u32(HEADER[frame.family].fields.source.at + at), frame.header.offset);
    a.alu("and", "r1", mask, 32);
    a.jumpIf("r1", "!=", value, isOther, 32);
  }
  a.jump(frame.pass);
  a.place(isOther);
}
