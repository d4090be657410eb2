/** Prints libnftables' JSON as text, as nft does. Unknown parts are printed as JSON. */
import { urlHost } from "../../net/ip.ts";
import { elementOf, type JsonObject, listOf, named, numberOf, textOf } from "./json.ts";

export function ruleText(statements: readonly unknown[], comment: string | undefined): string {
  const texts = statements.map(statementText);
  if (comment !== undefined) texts.push(`comment "${comment}"`);
  return texts.join(" ");
}

export function statementText(json: unknown): string {
  if (typeof json === "string") return json;
  const found = named(json);
  const { name, fields: body } = found;
  switch (name) {
    case "":
      return JSON.stringify(json) ?? "";
    case "match":
      return matchText(body);
    case "vmap":
      return `${expressionText(body.key)} vmap ${expressionText(body.data)}`;
    case "mangle":
      return `${expressionText(body.key)} set ${expressionText(body.value)}`;
    case "set":
      return `${textOf(body.op) ?? "add"} ${textOf(body.set) ?? ""} { ${expressionText(body.elem)} }`;
    case "map":
      return `${textOf(body.op) ?? "add"} ${textOf(body.map) ?? ""} { ${expressionText(body.elem)} : ${expressionText(body.data)} }`;
    case "dnat":
    case "snat":
    case "masquerade":
    case "redirect":
      return translationText(name, body);
    case "reject":
      return rejectText(body);
    case "opaque":
      return String(found.body);
    case "counter":
      return typeof found.body === "string" ? `counter name "${found.body}"` : "counter";
    case "log":
      return body.prefix === undefined ? "log" : `log prefix ${JSON.stringify(body.prefix)}`;
    case "limit":
      return `limit rate ${body.inv === true ? "over " : ""}${body.rate}/${body.per}`;
    case "xt":
      return textOf(body.options) ?? `xt ${textOf(body.type) ?? ""} "${textOf(body.name) ?? ""}"`;
    default:
      return expressionText(json);
  }
}

const SHOWN_IN_HEX = /^(?:meta|ct) mark/;
/** Keys whose values nft quotes. */
const SHOWN_IN_QUOTES = /^(?:iif|oif)(?:name)?$/;

function matchText({ op, left, right }: JsonObject): string {
  const leftText = expressionText(left);
  const isMark = SHOWN_IN_HEX.test(leftText);
  const rightText = SHOWN_IN_QUOTES.test(leftText) ? quotedNames(right) : expressionText(right, isMark);
  const operator = op === "==" || op === "in" ? "" : ` ${textOf(op) ?? ""}`;
  // nft omits `==` unless the left side is a computation.
  const sign = op === "==" && named(left).name === "&" ? " ==" : operator;
  return `${leftText}${sign} ${rightText}`;
}

function quotedNames(right: unknown): string {
  const set = named(right);
  if (set.name !== "set") return JSON.stringify(right) ?? "";
  return `{ ${listOf(set.body)
    .map((name) => JSON.stringify(name))
    .join(", ")} }`;
}

function rejectText({ type, expr }: JsonObject): string {
  if (type === "tcp reset") return "reject with tcp reset";
  if (expr === undefined || expr === "port-unreachable") return "reject";
  return `reject with ${textOf(type) ?? ""} ${expressionText(expr)}`;
}

function translationText(name: string, { addr, port, family, flags }: JsonObject): string {
  const kind = family === undefined ? name : `${name} ${textOf(family) ?? ""}`;
  const flagText = listOf(flags).map((flag) => ` ${String(flag)}`);
  if (addr === undefined && port === undefined) return `${kind}${flagText.join("")}`;
  const address = addr === undefined ? "" : expressionText(addr);
  const hostText = port === undefined ? address : urlHost(address);
  return `${kind} to ${hostText}${port === undefined ? "" : `:${expressionText(port)}`}${flagText.join("")}`;
}

/** The text of an expression. @param isHex prints numbers in hexadecimal, as marks. */
export function expressionText(json: unknown, isHex = false): string {
  if (typeof json === "number" && isHex) return `0x${json.toString(16).padStart(8, "0")}`;
  if (typeof json === "string" || typeof json === "number") return String(json);
  if (json === false) return "missing";
  if (json === true) return "exists";
  if (Array.isArray(json)) return json.map((item) => expressionText(item, isHex)).join(",");
  const found = named(json);
  const body = found.fields;
  switch (found.name) {
    case "":
      return JSON.stringify(json) ?? "";
    case "payload":
      if (body.base !== undefined) return `@${body.base},${body.offset},${body.len}`;
      return [body.tunnel, body.protocol, body.field].filter((word) => word !== undefined).join(" ");
    case "meta":
      return metaText(textOf(body.key) ?? textOf(found.body) ?? "");
    case "ct":
      return ["ct", textOf(body.dir), textOf(body.key)].filter((word) => word !== undefined).join(" ");
    case "fib":
      return `fib ${listOf(body.flags).join(" . ")} ${textOf(body.result) ?? ""}`;
    case "numgen":
      return `numgen ${textOf(body.mode) ?? ""} mod ${body.mod}${body.offset ? ` offset ${body.offset}` : ""}`;
    case "jhash":
    case "symhash": {
      const hashed = body.expr === undefined ? "" : ` ${expressionText(body.expr)}`;
      const seed = numberOf(body.seed);
      const written = seed === undefined ? "" : ` seed 0x${seed.toString(16)}`;
      return `${found.name}${hashed} mod ${body.mod}${written}${body.offset ? ` offset ${body.offset}` : ""}`;
    }
    case "concat":
    case "range":
      return joined(found.body, found.name === "range" ? "-" : " . ");
    case "prefix":
      return `${textOf(body.addr) ?? ""}/${body.len}`;
    case "set":
      return `{ ${listOf(found.body).map(elementLine).join(", ")} }`;
    case "map":
      return `${expressionText(body.key)} map ${expressionText(body.data)}`;
    case "elem":
      return `${expressionText(body.val)}${body.timeout === undefined ? "" : ` timeout ${body.timeout}s`}`;
    case "&":
    case "|":
    case "^":
    case "<<":
    case ">>":
      return joined(found.body, ` ${found.name} `, true);
    case "accept":
    case "drop":
    case "return":
    case "continue":
    case "notrack":
    case "jump":
    case "goto":
      return [found.name, textOf(body.target)].filter((word) => word !== undefined).join(" ");
    default: {
      const { inv, ...rest } = body;
      const words = Object.values(rest);
      if (words.length === 0 || words.some((word) => typeof word === "object")) return JSON.stringify(json) ?? "";
      return [found.name, ...(inv === true ? ["over"] : []), ...words].join(" ");
    }
  }
}

function joined(items: unknown, between: string, isHex?: boolean): string {
  return listOf(items)
    .map((item) => expressionText(item, isHex))
    .join(between);
}

/** Keys that nft prints without the word `meta`. */
const BARE_META = new Set(["iif", "iifname", "oif", "oifname"]);

function metaText(key: string): string {
  return BARE_META.has(key) ? key : `meta ${key}`;
}

/** nft's names for priorities (nft(8), "Standard priority names"); `dstnat` applies to the prerouting hook only. */
export const PRIORITIES = { raw: -300, mangle: -150, dstnat: -100, filter: 0, security: 50, srcnat: 100 } as const;

/** The hook of a base chain; undefined for a regular chain. */
export function hookText({ type, hook, prio, policy }: JsonObject): string | undefined {
  if (hook === undefined) return undefined;
  const priority = priorityText(numberOf(prio) ?? 0, textOf(hook));
  return `type ${textOf(type)} hook ${textOf(hook)} priority ${priority}; policy ${textOf(policy)};`;
}

/** A priority within ten of a named one is printed as name plus offset (libnftables, prio2str). */
function priorityText(priority: number, hook: string | undefined): string {
  const [name, value] =
    Object.entries(PRIORITIES).find(
      ([near, at]) => Math.abs(priority - at) <= 10 && (near !== "dstnat" || hook === "prerouting"),
    ) ?? [];
  if (name === undefined || value === undefined) return String(priority);
  const offset = priority - value;
  return offset === 0 ? name : `${name} ${offset < 0 ? "-" : "+"} ${Math.abs(offset)}`;
}

/** Seconds as nft prints them: `3h`, `1m30s`. */
export function durationText(seconds: number): string {
  const parts = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3_600) % 24,
    Math.floor(seconds / 60) % 60,
    seconds % 60,
  ];
  return parts.map((part, index) => (part === 0 ? "" : `${part}${"dhms"[index]}`)).join("");
}

/** An element of a set or map as nft lists it: `10.96.0.10 . tcp . 80 : goto service-…`. */
export function elementLine(element: unknown): string {
  const [key, data] = Array.isArray(element) ? element : [element];
  const { val, comment } = elementOf(key);
  const said = typeof comment === "string" ? ` comment "${comment}"` : "";
  return `${expressionText(val)}${said}${data === undefined ? "" : ` : ${expressionText(data)}`}`;
}
