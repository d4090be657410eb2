/** IP sets from the output of `ipset save`. */
import { type IpFamily, parseCidr, parseIpAddress } from "../../net/ip.ts";
import type { Packet } from "../packet.ts";
import { fieldsQuestion, type PacketField, type Question, whichOf } from "../question.ts";
import { fits, keyText, orderOf, type Pattern, prefixRange } from "../value.ts";
import type { IpSets } from "./surroundings.ts";

interface SavedSet {
  readonly type: string;
  /** The kinds of its dimensions: `ip`, `port`, `net`. */
  readonly dimensions: readonly string[];
  /** Undefined for sets without a family. */
  readonly family: IpFamily | undefined;
  readonly exact: Set<string>;
  readonly patterns: (readonly Pattern[])[];
  /** Whether it has entries that are not understood. */
  isUnclear: boolean;
}

const BITMAP_PROTOCOLS = ["tcp", "udp"];
const UNDERSTOOD = new Set(["ip", "net", "port"]);

/** Reads the output of `ipset save`. @param isChanged whether packets have changed a set since. @default none has changed */
export function readIpSets(texts: readonly string[], isChanged: (name: string) => boolean = () => false): IpSets {
  const sets = new Map<string, SavedSet>();
  for (const text of texts) {
    for (const line of text.split("\n")) {
      const [word, name = "", subject = "", ...rest] = line.trim().split(" ");
      if (word === "create") sets.set(name, newSet(subject, rest));
      else if (word === "add") addEntry(sets.get(name), subject, rest);
    }
  }
  return {
    has: (name, directions, packet) => (isChanged(name) ? undefined : isIn(sets.get(name), directions, packet)),
    asks: (name, directions) => questionsOf(sets.get(name), directions),
  };
}

function newSet(type: string, options: readonly string[]): SavedSet {
  const dimensions = type.slice(type.indexOf(":") + 1).split(",");
  const family = options[options.indexOf("family") + 1];
  return {
    type,
    dimensions,
    family: family === "inet6" ? "IPv6" : family === "inet" ? "IPv4" : undefined,
    exact: new Set(),
    patterns: [],
    isUnclear: !dimensions.every((dimension) => UNDERSTOOD.has(dimension)),
  };
}

function addEntry(set: SavedSet | undefined, entry: string, options: readonly string[]): void {
  if (set === undefined) return;
  const parts = entry.split(",");
  const patterns = parts.map((part, index) => patternsOf(set.dimensions[index], part, set.type));
  const known = patterns.flatMap((one) => one ?? []);
  // An exception within a larger network takes precedence over it.
  if (parts.length !== set.dimensions.length || patterns.includes(undefined) || options.includes("nomatch")) {
    set.isUnclear = true;
    return;
  }
  const exact = known.flatMap((pattern) => (pattern.kind === "exact" ? [pattern.value] : []));
  if (exact.length === known.length) set.exact.add(keyText(exact));
  else set.patterns.push(known);
}

/** One for each of the fields that the dimension compares: see {@link fieldsOf}. */
function patternsOf(dimension: string | undefined, text: string, type: string): readonly Pattern[] | undefined {
  if (dimension === "port") return portPatterns(text, type);
  const cidr = parseCidr(text);
  if (cidr !== undefined) return [prefixRange(cidr)];
  const [first = "", last] = text.split("-");
  const [from, to] = [parseIpAddress(first), parseIpAddress(last ?? first)];
  if (from === undefined || to === undefined) return undefined;
  if (last === undefined) return [{ kind: "exact", value: from }];
  const [low, high] = [orderOf(from), orderOf(to)];
  return low === undefined || high === undefined ? undefined : [{ kind: "range", first: low, last: high }];
}

const isBitmap = (type: string) => type.startsWith("bitmap:");

/** Bitmaps have only ports; hashes have a protocol with each port. */
function portPatterns(text: string, type: string): readonly Pattern[] | undefined {
  if (isBitmap(type)) {
    const [from = "", to = from] = text.split("-");
    return [{ kind: "range", first: BigInt(from), last: BigInt(to) }];
  }
  const [whole, protocol = "tcp", port] = /^(?:([a-z0-9]+):)?(\d+)$/.exec(text) ?? [];
  return whole === undefined
    ? undefined
    : [
        { kind: "exact", value: protocol },
        { kind: "exact", value: Number(port) },
      ];
}

/** What the set compares, in order. */
function fieldsOf({ dimensions, type }: SavedSet, directions: readonly ("src" | "dst")[]): readonly PacketField[] {
  return dimensions.flatMap((dimension, index): PacketField[] => {
    const isSource = directions[index] === "src";
    if (dimension !== "port") return [isSource ? "source" : "destination"];
    return [...(isBitmap(type) ? [] : ["protocol" as const]), isSource ? "sourcePort" : "destinationPort"];
  });
}

function isIn(set: SavedSet | undefined, directions: readonly ("src" | "dst")[], packet: Packet): boolean | undefined {
  if (set === undefined) return undefined;
  if (set.family !== undefined && set.family !== packet.family) return false;
  if (set.dimensions.includes("port")) {
    // A bitmap matches only ports of TCP and UDP (net/netfilter/ipset/ip_set_bitmap_port.c, ip_set_get_ip_port).
    if (isBitmap(set.type) && !BITMAP_PROTOCOLS.includes(packet.protocol)) return false;
    // For ICMP, an entry would have a type in place of the port.
    if (packet.protocol.startsWith("icmp")) return set.isUnclear ? undefined : false;
  }
  const fields = fieldsOf(set, directions);
  const parts = fields.flatMap((field) => packet[field] ?? []);
  if (parts.length < fields.length) return undefined;
  if (set.exact.has(keyText(parts))) return true;
  const found = set.patterns.some((patterns) => patterns.every((pattern, index) => fits(pattern, parts[index] ?? "")));
  return found || !set.isUnclear ? found : undefined;
}

function questionsOf(
  set: SavedSet | undefined,
  directions: readonly ("src" | "dst")[],
): readonly Question[] | undefined {
  if (set === undefined || set.isUnclear) return undefined;
  const exact = Array.from(set.exact, (key): Pattern[] => {
    return key.split(" . ").map((value) => ({ kind: "exact", value: /^\d+$/.test(value) ? Number(value) : value }));
  });
  const keys = [...exact, ...set.patterns].map((patterns) => ({ patterns, outcome: "" }));
  const ofBitmap = isBitmap(set.type) ? [whichOf("protocol", BITMAP_PROTOCOLS)] : [];
  return [...ofBitmap, fieldsQuestion(fieldsOf(set, directions), keys)];
}
