/** Statements of libnftables' JSON as steps of a walk. */

import type { KernelVersion } from "../../kernel/kernel-version.ts";
import { elementOf, isObject, type JsonObject, named, textOf } from "../../kernel/nftables/json.ts";
import { statementText } from "../../kernel/nftables/json-text.ts";
import { readRule } from "../../kernel/nftables/listing/statements.ts";
import { WordReader } from "../../kernel/nftables/listing/words.ts";
import { type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { WRITES } from "../iptables/ruleset.ts";
import { type Action, iptablesAction, nftablesAction } from "../netfilter/actions.ts";
import {
  asked,
  GO_ON,
  lost,
  NO_CONNECTION,
  NO_MATCH,
  type Step,
  type StepResult,
  type Verdict,
} from "../netfilter/program.ts";
import { copyStep, masquerade, redirect, translated } from "../netfilter/translations.ts";
import { EARLIER_CONNECTIONS } from "../netfilter/tree.ts";
import { ALL_BITS, endText, hasConnection, type Packet, UNKNOWN_MARK, withDestination, withSource } from "../packet.ts";
import { whichOf } from "../question.ts";
import { keyText } from "../value.ts";
import { compileCondition } from "./condition.ts";
import {
  allAsked,
  compileExpression,
  drawn,
  type Expression,
  type Found,
  isExcluded,
  keyQuestions,
  occupiedIn,
  type Surroundings,
  setIn,
  valueQuestions,
} from "./expression.ts";

/** Compiles a statement. One that is not understood makes the walk fork, or ends it if the statement may change the packet. */
export function compileStatement(json: unknown, surroundings: Surroundings): Step {
  const step = compile(json, surroundings);
  const { table, written } = surroundings;
  if (written.size === 0) return step;
  const names = Array.from(JSON.stringify(json).matchAll(READ), ([, name]) => name ?? "").filter((name) =>
    written.has(name),
  );
  return names.length === 0 ? step : { ...step, reads: (entry) => entry.table === table && names.includes(entry.set) };
}

/** A set that is looked up, and not one into which the statement writes. */
const READ = /(?<!"(?:set|map)":)"@([^"]+)"/g;

function compile(json: unknown, surroundings: Surroundings): Step {
  const text = statementText(json);
  const fixed = (result: StepResult): Step => ({ text, asks: [], run: () => result });
  if (typeof json === "string") {
    const read = statementIn(json);
    return read === undefined ? fixed(asked(text)) : { ...compileStatement(read, surroundings), text };
  }
  const found = named(json);
  const body = found.fields;
  switch (found.name) {
    case "match":
      return compileCondition(body, text, surroundings);
    case "vmap":
      return verdictMap(body, text, surroundings);
    case "mangle":
      return mangle(body, text, surroundings);
    case "set":
    case "map":
      return entryStep(body, text, surroundings);
    case "dnat":
    case "snat":
    case "masquerade":
    case "redirect":
      return compileTranslation(found.name, body, text, surroundings);
    case "notrack":
      return {
        text,
        asks: [],
        isAction: true,
        // Behind connection tracking it changes nothing.
        run: (packet) =>
          packet.isTracked ? GO_ON : { kind: "go-on", packet: { ...packet, state: "untracked" }, said: text },
      };
    case "xt":
      if (isIdleXt(body)) return fixed(GO_ON);
      return {
        ...fixed(body.type === "match" ? asked(`${text} holds`) : lost(`${text} is not understood: ${SAVE}`)),
        text: `${text} (${SAVE})`,
      };
    case "opaque": {
      const yes = lost(`${text} is not understood`);
      return fixed({ kind: "unknown", question: `${text} holds`, yes, no: NO_MATCH });
    }
    case "limit":
    case "quota":
    case "ct count":
    case "meter":
      return fixed(asked(`${text} is not exceeded`));
    case "dup":
      return copyStep(text, parseIpAddress(textOf(body.addr) ?? ""));
    case "reject":
      return refusal(body, text);
    default: {
      // Where the map names no object for the packet, the rule ends.
      if (body.map !== undefined) return fixed(asked(`${text} names an object`));
      const verdict = verdictOf(json);
      return fixed(verdict === undefined ? acting(nftablesAction(found.name), text) : { kind: "verdict", verdict });
    }
  }
}

/** Whether a rule of these statements only compares, counts or logs, so that nothing depends on it. */
export function areIdle(statements: readonly unknown[]): boolean {
  return statements.every((json) => {
    const { name, fields } = named(json);
    if (name === "mangle") return mangleAction(fields)?.kind === "none";
    if (name === "xt") return fields.type === "match" ? !WRITES.test(`-m ${fields.name} `) : isIdleXt(fields);
    return IDLE.has(name) || nftablesAction(name)?.kind === "none";
  });
}

/** Conditions, which have no state that others see. */
const IDLE = new Set(["match", "limit", "quota", "ct count"]);

/** Whether a match or target of iptables changes no way with any of its options, which nft does not print. */
function isIdleXt(body: JsonObject): boolean {
  const name = textOf(body.name) ?? "";
  return name === "comment" || (!["CT", "TTL", "HL"].includes(name) && iptablesAction(name, "")?.kind === "none");
}

function acting(action: Action | undefined, text: string): StepResult {
  if (action?.kind === "none") return GO_ON;
  if (action?.kind === "ends") return NO_MATCH;
  return lost(action === undefined ? `${text} is not understood` : `${text} ${action.because}`);
}

/** nft only prints their names. */
const SAVE = "iptables-save has the rest of it";

/** nft 1.0.6 has no JSON for statements that fill maps and prints their text. */
function statementIn(text: string): unknown {
  const [found, ...others] = readRule(new WordReader(text), 0).expr;
  return others.length > 0 || (isObject(found) && found.opaque !== undefined) ? undefined : found;
}

/** Whether it depends on a rate, a quota or a connection count if a rule continues. @param statements beside an entry or a set */
export const hasRate = (statements: unknown): boolean =>
  /"(?:limit|quota|ct count)":/.test(JSON.stringify(statements) ?? "");

/** nft leaves out the condition that it adds: a reset answers TCP, and an ICMP error packets of its family. */
function refusal(body: JsonObject, text: string): Step {
  const verdict = verdictOf({ reject: body });
  const isOther = ({ family, protocol }: Packet): boolean =>
    body.type === "tcp reset"
      ? protocol !== "tcp"
      : (body.type === "icmp" && family === "IPv6") || (body.type === "icmpv6" && family === "IPv4");
  return {
    text,
    asks: body.type === "tcp reset" ? [whichOf("protocol", ["tcp"])] : [],
    run: (packet) => (verdict === undefined || isOther(packet) ? NO_MATCH : { kind: "verdict", verdict }),
  };
}

/** A verdict as a statement or as the value of a map; undefined for anything else. */
export function verdictOf(json: unknown): Verdict | undefined {
  const { name, fields: body } = named(json);
  switch (name) {
    case "accept":
    case "drop":
    case "return":
      return { kind: name };
    case "jump":
    case "goto":
      return { kind: name, chain: textOf(body.target) ?? "" };
    case "reject":
      if (body.type === undefined) return { kind: "reject" };
      return {
        kind: "reject",
        answer: [body.type, ...(body.expr === undefined ? [] : [body.expr])].join(" "),
      };
    default:
      return undefined;
  }
}

function verdictMap(body: JsonObject, text: string, surroundings: Surroundings): Step {
  const key = compileExpression(body.key, surroundings);
  const map = setIn(body.data, true, key.names ?? [], surroundings);
  const indexed: Expression = { ...key, occupied: (packet) => occupiedIn(map, key, packet) };
  return {
    text,
    asks: keyQuestions(key, map?.keys),
    run: (packet) =>
      drawn(indexed, packet, (reading): StepResult => {
        if (isExcluded(reading, map)) return NO_MATCH;
        if (reading.kind !== "value") return lost(`${text}: ${reading.what} is not known`);
        if (map === undefined) return lost(`${text}: the map is not known`);
        const found = map.lookup(reading.parts);
        if (found === undefined) {
          return map.isUnclear || map.mayHave(reading.parts)
            ? lost(`${text}: not everything in the map is known`)
            : NO_MATCH;
        }
        const verdict = verdictOf(found.data);
        // `continue`, and statements that only count.
        if (verdict === undefined) return GO_ON;
        const owner = found.comment === undefined ? "" : ` (${found.comment})`;
        return { kind: "verdict", verdict, said: `${statementText(found.data)}${owner}` };
      }),
    observed(packet) {
      const reading = key.read(packet, 0);
      return reading.kind === "value" ? `the map has no ${reading.parts.join(" . ")}` : `the packet has no ${key.text}`;
    },
  };
}

function mangleAction({ key, value }: JsonObject, kernel?: KernelVersion): Action | undefined {
  const { name, fields } = named(key);
  const field = name === "payload" ? [fields.protocol, fields.field] : [name, fields.key ?? fields.name];
  return nftablesAction(field.join(" "), value, kernel);
}

function mangle(body: JsonObject, text: string, surroundings: Surroundings): Step {
  const { name, fields } = named(body.key);
  if (name === "ct" && fields.key === "mark") {
    return connectionMark(compileExpression(body.value, surroundings), text);
  }
  if (name !== "meta" || fields.key !== "mark") {
    const result = acting(mangleAction(body, surroundings.kernel), text);
    // To a packet that has a connection already, no zone is given (nft_ct.c, nft_ct_set_zone_eval).
    const isZone = name === "ct" && fields.key === "zone";
    return { text, asks: [], run: ({ isTracked }) => (isZone && isTracked ? GO_ON : result) };
  }
  const value = compileExpression(body.value, surroundings);
  return {
    text,
    asks: valueQuestions(value),
    isAction: true,
    run: (packet) =>
      drawn(value, packet, (reading): StepResult => {
        const mark = reading.kind === "value" ? reading.parts[0] : undefined;
        if (typeof mark !== "number") return lost(`${text}: the mark is not known`);
        return { kind: "go-on", packet: { ...packet, mark }, said: `mark 0x${mark.toString(16)}` };
      }),
  };
}

/** A value that is unknown, or a field of the packet, makes the mark unknown, which only affects rules that read it. */
function connectionMark(value: Expression, text: string): Step {
  const isField = valueQuestions(value) === undefined;
  const set = (packet: Packet, mark: unknown): StepResult => {
    if (!hasConnection(packet)) return NO_CONNECTION;
    const isKnown = !isField && typeof mark === "number";
    const connectionMark = isKnown ? { value: mark, known: ALL_BITS } : UNKNOWN_MARK;
    return { kind: "go-on", packet: { ...packet, connectionMark }, said: text };
  };
  return {
    text,
    asks: value.asks,
    isAction: true,
    run: (packet) =>
      drawn(value, packet, (reading): StepResult => {
        if (reading.kind === "value") return set(packet, reading.parts[0]);
        const unknown = set(packet, undefined);
        if (reading.kind === "unknown") return unknown;
        return { kind: "unknown", question: `${reading.what}, which packets fill`, yes: unknown, no: NO_MATCH };
      }),
  };
}

/** `update @set { … }`: later packets meet what it writes into the set. */
function entryStep(body: JsonObject, text: string, surroundings: Surroundings): Step {
  const { op, set, map, elem, data } = body;
  const name = textOf(set ?? map)?.slice(1) ?? "";
  if (hasRate(body) || surroundings.setNamed(name)?.hasRate === true)
    return { text, asks: [], run: () => asked(`${text} is not exceeded`) };
  const key = compileExpression(elementOf(elem).val, surroundings);
  const value = data === undefined ? undefined : compileExpression(data, surroundings);
  return {
    text,
    // An entry holds the packet's own values, so it means the same for every sender.
    asks: key.isUnknown || value?.isUnknown ? undefined : allAsked(value === undefined ? [key] : [key, value]),
    isAction: true,
    run(packet: Packet): StepResult {
      const reading = key.read(packet, 0);
      const dataReading = value?.read(packet, 0);
      if (reading.kind === "none" || dataReading?.kind === "none") return NO_MATCH;
      if (reading.kind !== "value") return GO_ON;
      const place = { table: surroundings.table, set: name, key: keyText(reading.parts) };
      if (op === "delete") return { kind: "go-on", entry: { ...place, isGone: true }, said: `forgets ${place.key}` };
      if (dataReading !== undefined && dataReading.kind !== "value") return GO_ON;
      const parts = dataReading?.parts;
      const entry = { ...place, ...(parts === undefined ? {} : { data: parts }) };
      return {
        kind: "go-on",
        entry,
        said: `remembers ${entry.key}${parts === undefined ? "" : ` : ${keyText(parts)}`} in ${name}`,
      };
    },
  };
}

const FAMILIES: Readonly<Record<string, IpFamily>> = { ip: "IPv4", ip6: "IPv6" };

function compileTranslation(
  kind: "dnat" | "snat" | "masquerade" | "redirect",
  body: JsonObject,
  text: string,
  surroundings: Surroundings,
): Step {
  const { facts } = surroundings;
  // In a table for both families, packets of the other family are skipped.
  const isOther = (packet: Packet): boolean => (FAMILIES[String(body.family)] ?? packet.family) !== packet.family;
  const port = body.port === undefined ? undefined : compileExpression(body.port, surroundings);
  const portAsks = port === undefined ? [] : valueQuestions(port);
  const withPort = (packet: Packet, translate: (number: number | undefined) => StepResult): StepResult => {
    if (port === undefined) return translate(undefined);
    return drawn(port, packet, (reading): StepResult => {
      const [number] = reading.kind === "value" ? reading.parts : [];
      return typeof number === "number" ? translate(number) : lost(`${text}: the port is not known`);
    });
  };
  switch (kind) {
    case "masquerade":
      return { text, asks: [facts.about.destination], run: (packet) => masquerade(packet, facts) };
    case "redirect":
      return {
        text,
        asks: portAsks && [facts.about.source, ...portAsks],
        run: (packet) => withPort(packet, (number) => redirect(packet, number, facts)),
      };
    default: {
      const address = compileExpression(body.addr, surroundings);
      const judge =
        (packet: Packet) =>
        (reading: Found): StepResult => {
          if (reading.kind === "maybe") {
            const yes = lost(EARLIER_CONNECTIONS);
            return { kind: "unknown", question: `${reading.what}, which packets fill`, yes, no: NO_MATCH };
          }
          const [host, number] = reading.kind === "value" ? reading.parts : [];
          const target = typeof host === "string" ? parseIpAddress(host) : undefined;
          if (target === undefined) return lost(`${text}: the address is not known`);
          const to = (targetPort: number | undefined): StepResult => {
            const changed = kind === "dnat" ? withDestination(packet, target, targetPort) : withSource(packet, target);
            return translated(changed, `${kind} to ${endText(target, targetPort)}`);
          };
          if (typeof number === "number") return to(number);
          // The kernel picks any free port for a source.
          return kind === "snat" ? to(undefined) : withPort(packet, to);
        };
      const addressAsks = valueQuestions(address);
      return {
        text,
        asks: addressAsks && portAsks && [...addressAsks, ...portAsks],
        run: (packet) => (isOther(packet) ? GO_ON : drawn(address, packet, judge(packet))),
        observed(packet) {
          const reading = address.read(packet, 0);
          return reading.kind === "none" ? `the map has nothing for this packet` : address.text;
        },
      };
    }
  }
}
