/** From the address that is asked for to one of its backends. */

import type { Label } from "../asm/assembler.ts";
import { u32, u64 } from "../layout.ts";
import {
  BACKEND_IDENTITY_WORD,
  BACKEND_VALUE,
  CHOICE_VALUE,
  EXTENT_WORD,
  FRONTEND_KEY,
  FRONTEND_VALUE,
  IDENTITY_WORD,
  SLOT_VALUE,
} from "../socket-balancer/maps.ts";
import { HEADER, TRANSPORT } from "./headers.ts";
import { CLIENT_KEY, MASQUERADED } from "./maps.ts";
import { EXTENT, IDENTITY, type PacketFrame, PLACE, PROTOCOL } from "./packet-frame.ts";

const NS_PER_SECOND = 1_000_000_000;

/** Leaves the frontend's words in {@link EXTENT} and {@link IDENTITY}: its element may be used for another at any time. */
export function findFrontend(frame: PacketFrame): void {
  const { a } = frame;
  const { fields } = FRONTEND_KEY[frame.family];
  const [found, isKnown] = [a.label("found"), a.label("known")];
  const { address } = fields;
  frame.copy(frame.header, HEADER[frame.family].fields.destination, frame.asked, address);
  a.load("r1", "r10", TRANSPORT.fields.destinationPort, frame.transport.offset);
  a.store("r10", fields.port, "r1", frame.asked.offset);
  a.store("r10", fields.protocol, PROTOCOL, frame.asked.offset);
  frame.lookup(frame.maps.frontends, frame.asked);
  a.jumpIf("r0", "!=", 0, found);
  // A node port has no address of its own: it is looked up without one, and then the address among the node's.
  for (let at = 0; at < address.bytes; at += 4) a.store("r10", u32(address.at + at), 0, frame.asked.offset);
  frame.lookup(frame.maps.frontends, frame.asked);
  a.jumpIf("r0", "==", 0, frame.pass);
  takeFrontend(frame);
  frame.copy(frame.header, HEADER[frame.family].fields.destination, frame.asked, address);
  frame.lookup(frame.maps.nodeAddresses, frame.asked);
  a.jumpIf("r0", "==", 0, frame.pass);
  a.jump(isKnown);
  a.place(found);
  takeFrontend(frame);
  a.place(isKnown);
  a.mov("r1", IDENTITY);
  a.alu("rsh", "r1", 32);
  a.jumpIf("r1", "&", ~MASQUERADED, frame.pass, 32);
}

function takeFrontend(frame: PacketFrame): void {
  const { a } = frame;
  a.load(EXTENT, "r0", EXTENT_WORD);
  a.load(IDENTITY, "r0", IDENTITY_WORD);
  a.load("r1", "r0", FRONTEND_VALUE.fields.affinitySeconds);
  a.store("r10", u64(0), "r1", frame.seconds.offset);
}

/** Leaves its address in {@link PacketFrame.backend}: the one that the client had, or one of all. */
export function chooseBackend(frame: PacketFrame): void {
  const { a } = frame;
  const [draw, isChosen] = [a.label("draw"), a.label("chosen")];
  recall(frame, draw);
  takeBackend(frame, draw);
  a.jump(isChosen);
  a.place(draw);
  drawSlot(frame);
  takeBackend(frame, frame.pass);
  a.place(isChosen);
}

/** The client's last choice, if there is one that holds; its index is in {@link PacketFrame.index}. */
function recall(frame: PacketFrame, none: Label): void {
  const { a } = frame;
  const { address, id } = CLIENT_KEY[frame.family].fields;
  const { backend, lastUsedNs } = CHOICE_VALUE.fields;
  a.load("r1", "r10", u64(0), frame.seconds.offset);
  a.jumpIf("r1", "==", 0, none);
  frame.copy(frame.header, HEADER[frame.family].fields.source, frame.client, address);
  a.store("r10", id, IDENTITY, frame.client.offset);
  frame.lookup(frame.maps.packetClients, frame.client);
  a.jumpIf("r0", "==", 0, none);
  a.load("r1", "r0", backend);
  a.store("r10", u32(0), "r1", frame.index.offset);
  a.load("r1", "r0", lastUsedNs);
  a.store("r10", lastUsedNs, "r1", frame.choice.offset);
  a.call("ktime_get_ns");
  a.load("r1", "r10", lastUsedNs, frame.choice.offset);
  a.alu("sub", "r0", "r1");
  a.load("r2", "r10", u64(0), frame.seconds.offset);
  a.alu("mul", "r2", NS_PER_SECOND);
  a.jumpIf("r0", ">", "r2", none);
}

/** Slot `base + (random × count >> 32)`. */
function drawSlot(frame: PacketFrame): void {
  const { a } = frame;
  a.call("get_prandom_u32");
  a.mov("r1", EXTENT);
  a.alu("rsh", "r1", 32);
  a.jumpIf("r1", "==", 0, frame.pass);
  a.mov("r0", "r0", 32);
  a.alu("mul", "r0", "r1");
  a.alu("rsh", "r0", 32);
  a.alu("add", "r0", EXTENT, 32);
  a.store("r10", u32(0), "r0", frame.index.offset);
  frame.lookup(frame.maps.slots, frame.index);
  a.jumpIf("r0", "==", 0, frame.pass);
  a.load("r1", "r0", SLOT_VALUE.fields.backend);
  a.store("r10", u32(0), "r1", frame.index.offset);
}

/** As the socket programs do it: what lies between two equal identities belongs to them. */
function takeBackend(frame: PacketFrame, otherwise: Label): void {
  const { a } = frame;
  const { address, port } = BACKEND_VALUE[frame.family].fields;
  const identity = BACKEND_IDENTITY_WORD[frame.family];
  frame.lookup(frame.maps.backends, frame.index);
  a.jumpIf("r0", "==", 0, otherwise);
  a.load("r5", "r0", identity);
  a.load("r1", "r0", u64(address.at));
  if (frame.family === "IPv6") {
    a.load("r2", "r0", u64(address.at + 8));
    a.load("r3", "r0", port);
  }
  a.load("r4", "r0", identity);
  a.jumpIf("r4", "!=", "r5", otherwise);
  a.jumpIf("r4", "!=", IDENTITY, otherwise, 32);
  const place = PLACE.fields;
  if (frame.family === "IPv4") {
    a.store("r10", u32(place.address.at), "r1", frame.backend.offset);
    a.alu("rsh", "r1", 32);
    a.store("r10", place.port, "r1", frame.backend.offset);
  } else {
    a.store("r10", u64(place.address.at), "r1", frame.backend.offset);
    a.store("r10", u64(place.address.at + 8), "r2", frame.backend.offset);
    a.store("r10", place.port, "r3", frame.backend.offset);
  }
}

/** Which backend the client got, where that is to hold. What cannot be written is forgotten. */
export function remember(frame: PacketFrame): void {
  const { a } = frame;
  const { backend, lastUsedNs } = CHOICE_VALUE.fields;
  a.load("r1", "r10", u64(0), frame.seconds.offset);
  a.jumpIf("r1", "==", 0, frame.pass);
  a.call("ktime_get_ns");
  a.store("r10", lastUsedNs, "r0", frame.choice.offset);
  a.load("r1", "r10", u32(0), frame.index.offset);
  a.store("r10", backend, "r1", frame.choice.offset);
  a.loadMap("r1", frame.maps.packetClients);
  a.addressOf("r2", frame.client);
  a.addressOf("r3", frame.choice);
  a.mov("r4", 0);
  a.call("map_update_elem");
}
