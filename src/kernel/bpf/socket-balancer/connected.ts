/**
 * What is known of connected UDP sockets that were led. No program sees what they send, so they must be told when their backend goes
 * (reference ebpf.md §1.8, ebpf-operation.md §5.6).
 */
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import type { Assembler, Label, StackSlot } from "../asm/assembler.ts";
import type { Register } from "../asm/instruction.ts";
import { u32 } from "../layout.ts";
import { lookUp, remove, update } from "./map-calls.ts";
import { BACKEND_IDENTITY_WORD, type BalancerMaps, CONNECTED_VALUE, PEER_KEY } from "./maps.ts";
import { ADDRESS_WORDS, familyOfKind, loadCookie, type ProgramForm, type SocketKind } from "./socket-kind.ts";

/** A socket that is about to be led. */
interface Connecting {
  readonly a: Assembler;
  readonly form: ProgramForm;
  readonly kind: SocketKind;
  readonly maps: BalancerMaps;
  /** Where sockets go on that are not led. */
  readonly pass: Label;
  /** Cookie of the socket, and the backend's address: {@link PEER_KEY}. */
  readonly peer: StackSlot;
  /** The backend's. */
  readonly index: StackSlot;
  /** {@link CONNECTED_VALUE}, in which the backend's identity is written. */
  readonly record: StackSlot;
  /** Cookie of the only network namespace whose sockets can be told; undefined: all. */
  readonly onlyOf: bigint | undefined;
}

/**
 * Writes the record, without which the socket is not led. The backend is looked at once more after that: its writer takes its identity
 * away, and then reads the records. So it finds this one, or the socket finds no identity.
 */
export function registerConnected({ a, form, kind, maps, pass, peer, index, record, onlyOf }: Connecting): void {
  const family = familyOfKind(kind);
  const { netns, identity, address, port, backend } = CONNECTED_VALUE[family].fields;
  const { fields } = PEER_KEY[family];
  loadCookie(a, form, "netns");
  a.store("r10", netns, "r0", record.offset);
  if (onlyOf !== undefined) {
    a.loadWide("r1", onlyOf);
    a.jumpIf("r0", "!=", "r1", pass);
  }
  // The record begins with the cookie of the namespace, as the peer does with that of the socket.
  lookUp(a, maps.barred, record);
  a.jumpIf("r0", "!=", 0, pass);
  for (const word of ADDRESS_WORDS[kind].keys()) {
    a.load("r1", "r10", u32(fields.address.at + 4 * word), peer.offset);
    a.store("r10", u32(address.at + 4 * word), "r1", record.offset);
  }
  a.load("r1", "r10", fields.port, peer.offset);
  a.store("r10", port, "r1", record.offset);
  a.load("r1", "r10", u32(0), index.offset);
  a.store("r10", backend, "r1", record.offset);
  update(a, maps.connected, peer, record);
  a.jumpIf("r0", "!=", 0, pass);
  lookUp(a, maps.backends, index);
  a.jumpIf("r0", "==", 0, pass);
  a.load("r1", "r0", BACKEND_IDENTITY_WORD[family]);
  a.load("r2", "r10", identity, record.offset);
  a.jumpIf("r1", "!=", "r2", pass);
}

/** A socket that was led once, and connects to something else now, must not be taken for one that is led. */
export function forgetConnected(
  a: Assembler,
  form: ProgramForm,
  protocol: Register,
  maps: BalancerMaps,
  peer: StackSlot,
): void {
  const isForgotten = a.label("forgotten");
  a.jumpIf(protocol, "!=", PROTOCOL_NUMBERS.UDP, isForgotten);
  loadCookie(a, form, "socket");
  // The cookie is what a peer begins with, in both families.
  a.store("r10", PEER_KEY.IPv4.fields.cookie, "r0", peer.offset);
  remove(a, maps.connected, peer);
  a.place(isForgotten);
}
