/**
 * The program that packets meet where they come in by an interface. For the first packet of a connection to a frontend it chooses a
 * backend, and writes the connection into the kernel's table with the translation of both ends: the kernel translates this packet
 * and all others by itself, and no rule is asked (reference ebpf.md §2.3). Everything else goes on as it came, to the rules.
 */
import { type Cidr, familyOf, type IpFamily } from "../../../net/ip.ts";
import type { Program } from "../asm/program.ts";
import { TCX_NEXT } from "../contexts.ts";
import { chooseBackend, findFrontend, remember } from "./choose-backend.ts";
import type { PacketMapDefinitions } from "./maps.ts";
import { CONTEXT, PacketFrame } from "./packet-frame.ts";
import { demandPlainPacket, loadHeaders, passPods } from "./read-packet.ts";
import { chooseSource, demandNewDatagrams, describeConnection, writeEntry } from "./write-entry.ts";

export interface PacketOptions {
  /** Packets from here take the rules: pods, whose addresses other rules of the node may have to translate, too. */
  readonly podRange: Cidr | undefined;
}

/** For packets of a family. It answers that the packet goes on, always. */
export function packetProgram(family: IpFamily, maps: PacketMapDefinitions, { podRange }: PacketOptions): Program {
  const frame = new PacketFrame(family, maps);
  const { a, pass } = frame;
  a.mov(CONTEXT, "r1");
  demandPlainPacket(frame);
  loadHeaders(frame);
  if (podRange !== undefined && familyOf(podRange) === family) passPods(frame, podRange);
  frame.clear();
  findFrontend(frame);
  describeConnection(frame);
  demandNewDatagrams(frame);
  chooseBackend(frame);
  chooseSource(frame);
  writeEntry(frame);
  remember(frame);
  a.place(pass);
  a.mov("r0", TCX_NEXT);
  a.exit();
  return a.finish();
}
