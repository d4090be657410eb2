/** IP sets from the output of `ipset save`: their entries are read as elements of a set of nftables. */
import { type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { SetIndex } from "../nftables/named-set.ts";
import type { Packet } from "../packet.ts";
import { fieldsQuestion, type PacketField, type Question, whichOf } from "../question.ts";
import type { IpSets } from "./surroundings.ts";

interface SavedSet {
  readonly type: string;
  /** The kinds of its dimensions: `ip`, `port`, `net`. */
  readonly dimensions: readonly string[];
  /** Undefined for sets without a family. */
  readonly family: IpFamily | undefined;
  /** As JSON of nft has them. */
  readonly elements: unknown[];
  /** Of the elements, from the first packet on. */
  readonly index: SetIndex;
}

const BITMAP_PROTOCOLS = ["tcp", "udp"];
const UNDERSTOOD = new Set(["ip", "net", "port"]);
/** An element that is not understood. */
const UNCLEAR = undefined;

/** Reads the output of `ipset save`. @param isChanged whether packets have changed a set since. @default none has changed */
export function readIpSets(texts: readonly string[], isChanged: (name: string) => boolean = () => false): IpSets {
  const sets = new Map<string, SavedSet>();
  for (const text of texts) {
    for (const line of text.split("\n")) {
      const [word, name = "", subject = "", ...rest] = line.trim().split(" ");
      if (word === "create") sets.set(name, newSet(name, subject, rest));
      else if (word === "add") addEntry(sets.get(name), subject, rest);
    }
  }
  return {
    has: (name, directions, packet) => (isChanged(name) ? undefined : isIn(sets.get(name), directions, packet)),
    asks: (name, directions) => questionsOf(sets.get(name), directions),
  };
}

function newSet(name: string, type: string, options: readonly string[]): SavedSet {
  const dimensions = type.slice(type.indexOf(":") + 1).split(",");
  const family = options[options.indexOf("family") + 1];
  const elements = dimensions.every((dimension) => UNDERSTOOD.has(dimension)) ? [] : [UNCLEAR];
  return {
    type,
    dimensions,
    family: family === "inet6" ? "IPv6" : family === "inet" ? "IPv4" : undefined,
    elements,
    index: new SetIndex(name, false, elements, []),
  };
}

function addEntry(set: SavedSet | undefined, entry: string, options: readonly string[]): void {
  if (set === undefined) return;
  const { dimensions, type, elements } = set;
  const parts = entry.split(",");
  // An exception within a larger network takes precedence over it.
  const isUnclear = parts.length !== dimensions.length || options.includes("nomatch");
  const concat = parts.flatMap((part, index) =>
    dimensions[index] === "port" ? portParts(part, type) : addressPart(part),
  );
  elements.push(isUnclear ? UNCLEAR : { concat });
}

/** Undefined if it is not understood. */
function addressPart(text: string): unknown {
  const [addr, len] = text.split("/");
  if (len !== undefined) return { prefix: { addr, len } };
  const [first, ...last] = text.split("-").map(parseIpAddress);
  return last.length === 0 ? first : { range: [first, ...last] };
}

const isBitmap = (type: string) => type.startsWith("bitmap:");

/** Bitmaps have only ports; hashes have a protocol with each port. */
function portParts(text: string, type: string): readonly unknown[] {
  if (isBitmap(type)) {
    const [from, to = from] = text.split("-").map(Number);
    return [{ range: [from, to] }];
  }
  const [whole, protocol = "tcp", port] = /^(?:([a-z0-9]+):)?(\d+)$/.exec(text) ?? [];
  return whole === undefined ? [UNCLEAR] : [protocol, Number(port)];
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
    if (packet.protocol.startsWith("icmp")) return set.index.isUnclear ? undefined : false;
  }
  const fields = fieldsOf(set, directions);
  const parts = fields.flatMap((field) => packet[field] ?? []);
  if (parts.length < fields.length) return undefined;
  const isFound = set.index.lookup(parts) !== undefined;
  return isFound || !set.index.isUnclear ? isFound : undefined;
}

function questionsOf(
  set: SavedSet | undefined,
  directions: readonly ("src" | "dst")[],
): readonly Question[] | undefined {
  const keys = set?.index.keys;
  if (set === undefined || keys === undefined) return undefined;
  const ofBitmap = isBitmap(set.type) ? [whichOf("protocol", BITMAP_PROTOCOLS)] : [];
  return [...ofBitmap, fieldsQuestion(fieldsOf(set, directions), keys)];
}
