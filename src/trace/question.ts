/**
 * What a rule compares of a packet. From the questions that a packet meets on its way follows which other packets take the same
 * way: `prove` divides all packets by them (src/prove/). A step without questions it cannot divide.
 */
import type { Packet } from "./packet.ts";
import type { Parts, Pattern } from "./value.ts";

/** What a sender chooses freely. */
export const PACKET_FIELDS = [
  "source",
  "sourcePort",
  "destination",
  "destinationPort",
  "protocol",
  "inInterface",
  "bridgePort",
] as const;
export type PacketField = (typeof PACKET_FIELDS)[number];

/** A field as it is by now, or as the connection was asked for. */
export type ComparedField = PacketField | `original ${PacketField}`;

/** One value, or one range of them, that the fields are compared with. */
export interface Key {
  /** One for each of the fields. */
  readonly patterns: readonly Pattern[];
  /** What is found there: keys with the same outcome need not be told apart. */
  readonly outcome: string;
}

export interface Question {
  /** Undefined: a part that follows from other questions. */
  readonly fields: readonly (ComparedField | undefined)[];
  readonly keys: readonly Key[];
  /** The parts as the packet has them; undefined: it has none, and nothing is compared. */
  values(packet: Packet): Parts | undefined;
  /** The part that is drawn at random: every value of it is asked for. */
  readonly drawnPart?: number | undefined;
}

/** Whether the fields of the packet as it is now are in one of these. Pure. */
export function fieldsQuestion(fields: readonly PacketField[], keys: readonly Key[]): Question {
  return {
    fields,
    keys,
    values(packet) {
      const parts = fields.map((field) => packet[field]);
      const known = parts.flatMap((part) => (part === undefined ? [] : [part]));
      return known.length === parts.length ? known : undefined;
    },
  };
}

/** Which of these one field is, if any. Pure. */
export function whichOf(field: PacketField, values: readonly (string | number)[]): Question {
  const keys = values.map((value): Key => ({ patterns: [{ kind: "exact", value }], outcome: String(value) }));
  return fieldsQuestion([field], keys);
}
