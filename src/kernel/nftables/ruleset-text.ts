/**
 * A ruleset as text, as `nft list ruleset` (1.0.6) prints it: `nft -f` reads it back. Pure.
 */
import { intervalAsPrefix, mergedIntervals } from "../../net/intervals.ts";
import { type Cidr, joinHostPort, splitCidr } from "../../net/ip.ts";
import type {
  NftChain,
  NftElement,
  NftFamily,
  NftField,
  NftHook,
  NftRule,
  NftSet,
  NftStatement,
  NftVerdict,
} from "./ruleset.ts";
import { DYNAMIC_SET_SIZE, keyTypeName, sourceMask, targetTypeName } from "./ruleset-json.ts";
import type { NftTable } from "./ruleset-table.ts";

/** A whole table. */
export function tableText({ family, name, comment, counters, sets, chains }: NftTable): string {
  const blocks = [
    ...counters.map((counter) => block(`counter ${counter}`, ["packets 0 bytes 0"])),
    ...sets.map(({ set, elements }) => setText(set, elements, family)),
    ...chains.map((chain) => chainText(chain, family)),
  ];
  return `table ${family} ${name} {\n\tcomment ${quoted(comment)}\n${blocks.join("\n")}}\n`;
}

function quoted(text: string): string {
  return `"${text}"`;
}

function block(head: string, lines: readonly (string | undefined)[]): string {
  const present = lines.filter((line) => line !== undefined);
  return `\t${head} {\n${present.map((line) => `\t\t${line}\n`).join("")}\t}\n`;
}

function setText(set: NftSet, elements: readonly NftElement[], family: NftFamily): string {
  const { timeoutSeconds, size = DYNAMIC_SET_SIZE, comment } = set;
  const texts = elements.map(elementText);
  return block(`${set.isMap || set.hasTargets === true ? "map" : "set"} ${set.name}`, [
    typesText(set, family),
    ...(timeoutSeconds === undefined
      ? []
      : [`size ${size}`, "flags dynamic,timeout", `timeout ${durationText(timeoutSeconds)}`]),
    comment === undefined ? undefined : `comment ${quoted(comment)}`,
    elements.length === 0 ? undefined : `elements = { ${texts.join(ELEMENT_SEPARATOR)} }`,
  ]);
}

/** By names of types, or by what is looked up where a part has no name. */
function typesText({ key, isMap, hasTargets, slots }: NftSet, family: NftFamily): string {
  const names = key.map((type) => keyTypeName(type, family)).join(" . ");
  if (hasTargets !== true) return `type ${names}${isMap ? " : verdict" : ""}`;
  if (slots === undefined) return `type ${names} : ${targetTypeName(family)}`;
  const fields = { address: "daddr", protocol: "l4proto", port: "dport" } as const;
  const parts = key.map((type) => (type === "slot" ? randomText(slots) : fieldText(fields[type], family)));
  return `typeof ${parts.join(" . ")} : ${keyText(["daddr", "dport"], family)}`;
}

function randomText(slots: number): string {
  return `numgen random mod ${slots}`;
}

/** One element per line, below the first. */
const ELEMENT_SEPARATOR = `,\n\t\t${" ".repeat("elements = { ".length)}`;

/** An element as `nft` lists it: `10.96.0.10 . tcp . 80 : goto service-…`. */
export function elementText({ key, verdict, target, comment }: NftElement): string {
  const said = comment === undefined ? "" : ` comment ${quoted(comment)}`;
  const data = verdict === undefined ? target && `${target.ip} . ${target.port}` : verdictText(verdict);
  return `${key.join(" . ")}${said}${data === undefined ? "" : ` : ${data}`}`;
}

const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
  ["s", 1],
] as const;

function durationText(seconds: number): string {
  let rest = seconds;
  let text = "";
  for (const [unit, length] of UNITS) {
    const count = Math.floor(rest / length);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * length;
  }
  return text === "" ? "0s" : text;
}

function chainText({ name, hook, comment, rules }: NftChain, family: NftFamily): string {
  return block(`chain ${name}`, [
    comment === undefined ? undefined : `comment ${quoted(comment)}`,
    hook && `type ${hook.type} hook ${hook.hook} priority ${priorityText(hook)}; policy ${hook.policy ?? "accept"};`,
    ...rules.map((rule) => ruleText(rule, family)),
  ]);
}

/** Priorities that nft has names for, at the hooks where it uses them. */
function priorityText({ hook, priority }: NftHook): string {
  if (priority === 0) return "filter";
  const [name, value] = hook === "prerouting" ? (["dstnat", -100] as const) : (["srcnat", 100] as const);
  const distance = priority - value;
  if (hook !== "prerouting" && hook !== "postrouting") return String(priority);
  if (distance === 0) return name;
  // Names reach ten steps to either side.
  if (Math.abs(distance) > 10) return String(priority);
  return `${name} ${distance < 0 ? "-" : "+"} ${Math.abs(distance)}`;
}

/** A rule. */
export function ruleText({ statements, comment }: NftRule, family: NftFamily): string {
  const texts = statements.map((statement) => statementText(statement, family));
  if (comment !== undefined) texts.push(`comment ${quoted(comment)}`);
  return texts.join(" ");
}

/** A verdict: `goto service-…`. */
export function verdictText(verdict: NftVerdict): string {
  return "chain" in verdict ? `${verdict.kind} ${verdict.chain}` : verdict.kind;
}

function fieldText(field: NftField, family: NftFamily): string {
  switch (field) {
    case "saddr":
    case "daddr":
      return `${family} ${field}`;
    case "l4proto":
      return "meta l4proto";
    case "dport":
      return "th dport";
    case "original-daddr":
      return `ct original ${family} daddr`;
    case "original-dport":
      return "ct original proto-dst";
    case "reply-saddr":
      return `ct reply ${family} saddr`;
    case "reply-sport":
      return "ct reply proto-src";
    default:
      return `${family} saddr & ${sourceMask(field, family)}`;
  }
}

function keyText(fields: readonly NftField[], family: NftFamily): string {
  return fields.map((field) => fieldText(field, family)).join(" . ");
}

function markText(value: number): string {
  return `0x${(value >>> 0).toString(16).padStart(8, "0")}`;
}

function statementText(statement: NftStatement, family: NftFamily): string {
  switch (statement.kind) {
    case "ct-new":
      return "ct state new";
    case "ct-dnat":
      return "ct status dnat";
    case "address": {
      const operator = statement.negate === true ? "!= " : "";
      return `${fieldText(statement.side, family)} ${operator}${addressesText(statement.cidrs)}`;
    }
    case "fib-local":
      return `fib ${statement.side} type local`;
    case "in-interface": {
      const operator = statement.negate === true ? "!= " : "";
      return `iifname ${operator}${quoted(statement.isPrefix ? `${statement.name}*` : statement.name)}`;
    }
    case "mark-test":
      return `meta mark & ${markText(statement.mask)} != ${markText(0)}`;
    case "l4proto":
      return `meta l4proto ${statement.protocol}`;
    case "lookup":
      return `${keyText(statement.fields, family)} ${statement.negate === true ? "!= " : ""}@${statement.set}`;
    case "mark-set":
      return `meta mark set meta mark ${statement.operation === "or" ? "|" : "^"} ${markText(statement.value)}`;
    case "vmap":
      return `${keyText(statement.fields, family)} vmap @${statement.map}`;
    case "random-vmap":
      return `numgen random mod ${statement.verdicts.length} vmap ${indexed(statement.verdicts.map(verdictText))}`;
    case "update":
      return `update @${statement.set} { ${fieldText(statement.field, family)} }`;
    case "update-map":
      return `update @${statement.map} { ${keyText(statement.key, family)} : ${keyText(statement.target, family)} }`;
    case "map-dnat": {
      const key = keyText(statement.fields, family);
      const drawn = statement.slots === undefined ? "" : ` . ${randomText(statement.slots)}`;
      return `dnat ${family} to ${key}${drawn} map @${statement.map}`;
    }
    case "dnat":
      return `dnat to ${joinHostPort(statement.to.ip, statement.to.port)}`;
    case "random-dnat": {
      const targets = statement.targets.map(({ ip, port }) => `${ip} . ${port}`);
      return `dnat ${family} to numgen random mod ${targets.length} map ${indexed(targets)}`;
    }
    case "masquerade":
      return "masquerade fully-random";
    case "counter":
      return `counter name ${quoted(statement.name)}`;
    case "reject":
      return statement.withReset === true ? "reject with tcp reset" : "reject";
    case "verdict":
      return verdictText(statement.verdict);
  }
}

function indexed(values: readonly string[]): string {
  return `{ ${values.map((value, index) => `${index} : ${value}`).join(", ")} }`;
}

function addressesText(cidrs: readonly Cidr[]): string {
  const [only] = cidrs;
  if (only !== undefined && cidrs.length === 1) {
    const { address, length } = splitCidr(only);
    return prefixText(address, length);
  }
  const intervals = mergedIntervals(cidrs).map((interval) => {
    const prefix = intervalAsPrefix(interval);
    return prefix === undefined ? `${interval.first}-${interval.last}` : prefixText(prefix.address, prefix.length);
  });
  return `{ ${intervals.join(", ")} }`;
}

function prefixText(address: string, length: number): string {
  return length === (address.includes(":") ? 128 : 32) ? address : `${address}/${length}`;
}
