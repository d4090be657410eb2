/**
 * What a rule compares in a packet. The questions that a packet meets tell which other packets take the same path: `prove` divides
 * all packets into classes by them (src/tools/prove/). It cannot do so at a step whose questions are unknown.
 */
import type { Flow, Packet } from "./packet.ts";
import type { Pattern, SomeParts } from "./value.ts";

/** The fields that a sender can choose freely. */
export const PACKET_FIELDS = [
  "source",
  "sourcePort",
  "destination",
  "destinationPort",
  "protocol",
  "inInterface",
  "bridgePort",
  "udpLength",
] as const;
export type PacketField = (typeof PACKET_FIELDS)[number];

/** A field's current value, or its value before any translation of the connection. */
export type ComparedField = PacketField | `original ${PacketField}`;

/** One combination of values or ranges with which the fields are compared. */
export interface Key {
  /** One for each field. */
  readonly patterns: readonly Pattern[];
  /** The result of a match: keys with the same outcome need not be distinguished. */
  readonly outcome: string;
}

export interface Question {
  /** Undefined for a part that follows from other questions. */
  readonly fields: readonly (ComparedField | undefined)[];
  readonly keys: readonly Key[];
  /** The packet's values; undefined if it has none, so that nothing is compared. */
  values(packet: Packet): SomeParts | undefined;
  /** Index of the part that is a random number: the walk tries every value of it. */
  readonly drawnPart?: number | undefined;
}

/** Asks which of these keys the packet's current fields match. */
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

/** Asks which of these patterns a field fits. */
export function within(field: PacketField, patterns: readonly Pattern[]): Question {
  return fieldsQuestion([field], keysWith(patterns));
}

/** Asks which of these patterns the connection's field before any translation fits. */
export function ofOriginal(field: keyof Flow, patterns: readonly Pattern[]): Question {
  return {
    fields: [`original ${field}`],
    keys: keysWith(patterns),
    values({ original }) {
      const value = original[field];
      return value === undefined ? undefined : [value];
    },
  };
}

const keysWith = (patterns: readonly Pattern[]) => patterns.map((one): Key => ({ patterns: [one], outcome: "" }));

/** Asks which of these values a field has, if any. */
export function whichOf(field: PacketField, values: readonly (string | number)[]): Question {
  const keys = values.map((value): Key => ({ patterns: [{ kind: "exact", value }], outcome: String(value) }));
  return fieldsQuestion([field], keys);
}
