/** The entry of a connection in the kernel's table: what it is known by, and how both of its ends are translated. */
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import type { StackSlot } from "../asm/assembler.ts";
import { FIB_FLAGS, FIB_LOOKUP, PACKET } from "../contexts.ts";
import { u32 } from "../layout.ts";
import { HEADER, PORTS } from "./headers.ts";
import {
  CONTEXT,
  ENTRY,
  ENTRY_OPTIONS,
  IDENTITY,
  type PacketFrame,
  PLACE,
  PROTOCOL,
  TIMEOUT,
  TUPLE,
} from "./packet-frame.ts";

/** Until the packet comes to the table, which sets another; a packet that a filter drops before leaves the entry behind. */
const ENTRY_MS = 10_000;
/** For an entry that could not be translated: the next try of the client takes the rules. */
const NO_TIME_MS = 1;
const AF = { IPv4: 2, IPv6: 10 } as const;
/** Which end of a connection is translated. */
const END = { source: 0, destination: 1 } as const;
const THIS_NETWORK = -1;

/** What the table knows connections by. */
export function describeConnection(frame: PacketFrame): void {
  const { a } = frame;
  const header = HEADER[frame.family].fields;
  const { source, destination, ports } = TUPLE[frame.family].fields;
  frame.copy(frame.header, header.source, frame.tuple, source);
  frame.copy(frame.header, header.destination, frame.tuple, destination);
  a.load("r1", "r10", PORTS, frame.transport.offset);
  a.store("r10", ports, "r1", frame.tuple.offset);
  a.store("r10", ENTRY_OPTIONS.fields.network, THIS_NETWORK, frame.options.offset);
  a.store("r10", ENTRY_OPTIONS.fields.protocol, PROTOCOL, frame.options.offset);
}

/** Of TCP, the packet says that it is the first; and where an entry is all the same, it cannot be written. */
export function demandNewDatagrams(frame: PacketFrame): void {
  const { a } = frame;
  const isNew = a.label("new");
  a.jumpIf(PROTOCOL, "==", PROTOCOL_NUMBERS.TCP, isNew);
  askForEntry(frame, "bpf_skb_ct_lookup");
  a.jumpIf("r0", "==", 0, isNew);
  a.mov("r1", "r0");
  a.callKernel("bpf_ct_release");
  a.jump(frame.pass);
  a.place(isNew);
}

/**
 * Leaves in {@link PacketFrame.source} what the backend sees: the client, or, where the answers would go past the node, the address that the
 * node sends from on this way. An entry is final, so both ends are decided here.
 */
export function chooseSource(frame: PacketFrame): void {
  const { a } = frame;
  const [masquerade, isChosen] = [a.label("masquerade"), a.label("source")];
  const { source, destination } = HEADER[frame.family].fields;
  frame.copy(frame.header, source, frame.source, PLACE.fields.address);
  a.mov("r1", IDENTITY);
  a.alu("rsh", "r1", 32);
  a.jumpIf("r1", "!=", 0, masquerade);
  // A client that is led to itself would answer itself.
  for (let at = 0; at < source.bytes; at += 4) {
    a.load("r1", "r10", u32(source.at + at), frame.header.offset);
    a.load("r2", "r10", u32(PLACE.fields.address.at + at), frame.backend.offset);
    a.jumpIf("r1", "!=", "r2", isChosen);
  }
  a.place(masquerade);
  // What stays in the node is answered by it.
  frame.lookup(frame.maps.ownAddresses, frame.backend);
  a.jumpIf("r0", "!=", 0, isChosen);
  const route = FIB_LOOKUP.fields;
  a.store("r10", route.family, AF[frame.family], frame.route.offset);
  a.store("r10", route.protocol, PROTOCOL, frame.route.offset);
  a.load("r1", CONTEXT, PACKET.fields.interfaceIndex);
  a.store("r10", route.interfaceIndex, "r1", frame.route.offset);
  frame.copy(frame.header, source, frame.route, route.source);
  frame.copy(frame.backend, { at: PLACE.fields.address.at, bytes: destination.bytes }, frame.route, route.destination);
  a.mov("r1", CONTEXT);
  a.addressOf("r2", frame.route);
  a.mov("r3", FIB_LOOKUP.size);
  a.mov("r4", FIB_FLAGS);
  a.call("fib_lookup");
  a.jumpIf("r0", "!=", 0, frame.pass);
  frame.copy(frame.route, { at: route.source.at, bytes: source.bytes }, frame.source, PLACE.fields.address);
  a.place(isChosen);
}

/** Once it is in the table, the kernel does the rest. */
export function writeEntry(frame: PacketFrame): void {
  const { a } = frame;
  askForEntry(frame, "bpf_skb_ct_alloc");
  a.jumpIf("r0", "==", 0, frame.pass);
  a.mov(ENTRY, "r0");
  a.mov(TIMEOUT, ENTRY_MS);
  a.load("r3", "r10", PLACE.fields.port, frame.backend.offset);
  a.byteOrder("be", 16, "r3");
  translate(frame, frame.backend, END.destination);
  // The client's port, or another when it is taken.
  a.mov("r3", 0);
  translate(frame, frame.source, END.source);
  a.mov("r1", ENTRY);
  a.mov("r2", TIMEOUT);
  a.callKernel("bpf_ct_set_timeout");
  a.mov("r1", ENTRY);
  a.callKernel("bpf_ct_insert_entry");
  a.jumpIf("r0", "==", 0, frame.pass);
  a.mov("r1", "r0");
  a.callKernel("bpf_ct_release");
}

/** An entry can only be given back by writing it. @param end its port is in r3. */
function translate(frame: PacketFrame, place: StackSlot, end: number): void {
  const { a } = frame;
  const isDone = a.label("translated");
  a.mov("r1", ENTRY);
  a.addressOf("r2", place);
  a.mov("r4", end);
  a.callKernel("bpf_ct_set_nat_info");
  a.jumpIf("r0", "==", 0, isDone);
  a.mov(TIMEOUT, NO_TIME_MS);
  a.place(isDone);
}

function askForEntry(frame: PacketFrame, name: "bpf_skb_ct_lookup" | "bpf_skb_ct_alloc"): void {
  const { a } = frame;
  a.mov("r1", CONTEXT);
  a.addressOf("r2", frame.tuple);
  a.mov("r3", TUPLE[frame.family].size);
  a.addressOf("r4", frame.options);
  a.mov("r5", ENTRY_OPTIONS.size);
  a.callKernel(name);
}
