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
  const patterns = entry.split(",").map((part, index) => patternOf(set.dimensions[index], part, set.type));
  const known = patterns.flatMap((pattern) => (pattern === undefined ? [] : [pattern]));
  // An exception within a larger network takes precedence over it.
  if (known.length !== set.dimensions.length || options.includes("nomatch")) {
    set.isUnclear = true;
    return;
  }
  const exact = known.flatMap((pattern) => (pattern.kind === "exact" ? [pattern.value] : []));
  if (exact.length === known.length) set.exact.add(keyText(exact));
  else set.patterns.push(known);
}

function patternOf(dimension: string | undefined, text: string, type: string): Pattern | undefined {
  if (dimension === "port") return portPattern(text, type);
  const cidr = parseCidr(text);
  if (cidr !== undefined) return prefixRange(cidr);
  const [first = "", last] = text.split("-");
  const [from, to] = [parseIpAddress(first), parseIpAddress(last ?? first)];
  if (from === undefined || to === undefined) return undefined;
  if (last === undefined) return { kind: "exact", value: from };
  const [low, high] = [orderOf(from), orderOf(to)];
  return low === undefined || high === undefined ? undefined : { kind: "range", first: low, last: high };
}

/** Bitmaps have only ports; hashes have a protocol with each port. */
function portPattern(text: string, type: string): Pattern | undefined {
  if (!type.startsWith("bitmap:")) {
    const value = text.includes(":") ? text : `tcp:${text}`;
    return /^[a-z0-9]+:\d+$/.test(value) ? { kind: "exact", value } : undefined;
  }
  const [from = "", to = from] = text.split("-");
  return { kind: "range", first: BigInt(from), last: BigInt(to) };
}

function isIn(set: SavedSet | undefined, directions: readonly ("src" | "dst")[], packet: Packet): boolean | undefined {
  if (set === undefined) return undefined;
  if (set.family !== undefined && set.family !== packet.family) return false;
  const isBitmap = set.type.startsWith("bitmap:");
  const parts: (string | number)[] = [];
  for (const [index, dimension] of set.dimensions.entries()) {
    const isSource = directions[index] === "src";
    if (dimension === "port") {
      // A bitmap matches only ports of TCP and UDP (net/netfilter/ipset/ip_set_bitmap_port.c, ip_set_get_ip_port).
      if (isBitmap && !BITMAP_PROTOCOLS.includes(packet.protocol)) return false;
      // For ICMP, an entry would have a type in place of the port.
      if (packet.protocol.startsWith("icmp")) return set.isUnclear ? undefined : false;
      const port = isSource ? packet.sourcePort : packet.destinationPort;
      if (port === undefined) return undefined;
      parts.push(isBitmap ? port : `${packet.protocol}:${port}`);
    } else parts.push(isSource ? packet.source : packet.destination);
  }
  if (set.exact.has(keyText(parts))) return true;
  const found = set.patterns.some((patterns) => patterns.every((pattern, index) => fits(pattern, parts[index] ?? "")));
  return found || !set.isUnclear ? found : undefined;
}

const PROTOCOL_AND_PORT = /^([a-z0-9]+):(\d+)$/;

/** A hash compares a port together with its protocol. */
function questionsOf(
  set: SavedSet | undefined,
  directions: readonly ("src" | "dst")[],
): readonly Question[] | undefined {
  if (set === undefined || set.isUnclear) return undefined;
  const isBitmap = set.type.startsWith("bitmap:");
  const fields = set.dimensions.flatMap((dimension, index): PacketField[] => {
    const isSource = directions[index] === "src";
    if (dimension !== "port") return [isSource ? "source" : "destination"];
    return [...(isBitmap ? [] : ["protocol" as const]), isSource ? "sourcePort" : "destinationPort"];
  });
  const split = (pattern: Pattern): Pattern[] => {
    const match = pattern.kind === "exact" ? PROTOCOL_AND_PORT.exec(String(pattern.value)) : null;
    if (match === null) return [pattern];
    return [
      { kind: "exact", value: match[1] ?? "" },
      { kind: "exact", value: Number(match[2]) },
    ];
  };
  const exact = Array.from(set.exact, (key): Pattern[] => {
    return key.split(" . ").map((value) => ({ kind: "exact", value: /^\d+$/.test(value) ? Number(value) : value }));
  });
  const keys = [...exact, ...set.patterns].map((patterns) => ({ patterns: patterns.flatMap(split), outcome: "" }));
  return [...(isBitmap ? [whichOf("protocol", BITMAP_PROTOCOLS)] : []), fieldsQuestion(fields, keys)];
}
