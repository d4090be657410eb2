/** What a rule of nftables requires of one field: an address, a port or a device that it compares with one value. */
import { type JsonObject, listOf, named, textOf } from "../../kernel/nftables/json.ts";
import { parseCidr } from "../../net/ip.ts";
import type { RuleKey } from "../netfilter/rule-index.ts";
import type { PacketField } from "../question.ts";
import { patternOf } from "./constant.ts";
import { META_FIELDS, payloadField } from "./packet-fields.ts";

const PROTOCOLS = new Set(["ip", "ip6", "th", "tcp", "udp", "sctp"]);
const VERDICTS = new Set(["accept", "drop", "return", "reject"]);

/** A key, and which of the rule's statements compares it. */
interface Compared extends RuleKey {
  readonly at: number;
}

/** Of addresses, or else of one port or device. */
export function keysIn(rule: JsonObject): readonly Compared[] {
  const statements = listOf(rule.expr);
  const first = statements.findIndex((one) => !PASSING.has(named(one).name));
  const keys = statements
    .slice(0, first < 0 ? undefined : first)
    .flatMap((one, at) => keyAt(one, at, statements) ?? []);
  const of = (...fields: readonly PacketField[]) =>
    fields.flatMap((field) => keys.find((key) => key.field === field) ?? []);
  const addresses = of("destination", "source");
  return addresses.length > 0 ? addresses : of("destinationPort", "sourcePort", "inInterface").slice(0, 1);
}

/** Statements before which the others need not be looked at. */
const PASSING = new Set(["match", "counter"]);

function keyAt(statement: unknown, at: number, statements: readonly unknown[]): Compared | undefined {
  const { name, fields } = named(statement);
  const isSet = textOf(fields.right)?.startsWith("@") === true;
  const field = name === "match" && fields.op === "==" && !isSet ? fieldOf(fields.left) : undefined;
  const pattern = field && patternOf(fields.right);
  if (field === undefined || pattern === undefined || pattern.kind === "beginning") return undefined;
  const others = statements.filter((one, other) => other !== at && named(one).name !== "counter");
  const isVerdict = () => others.every((one) => VERDICTS.has(named(one).name));
  const key = { field, at, rest: () => JSON.stringify(others), isVerdict };
  if (pattern.kind === "exact") return { ...key, value: pattern.value };
  const { name: kind, fields: prefix } = named(fields.right);
  const cidr = kind === "prefix" ? parseCidr(`${prefix.addr}/${prefix.len}`) : undefined;
  return cidr && { ...key, value: cidr, prefix: cidr };
}

function fieldOf(left: unknown): PacketField | undefined {
  const { name, fields } = named(left);
  if (name === "meta") return META_FIELDS[textOf(fields.key) ?? ""] === "inInterface" ? "inInterface" : undefined;
  const protocol = textOf(fields.protocol) ?? "";
  if (name !== "payload" || fields.tunnel !== undefined || !PROTOCOLS.has(protocol)) return undefined;
  return payloadField(protocol, textOf(fields.field) ?? "");
}
