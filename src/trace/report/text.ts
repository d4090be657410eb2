/** A trace for people: the path step by step, indented where it forks, and its outcomes. */
import { escapeLine } from "../../logging/escape.ts";
import { IDLE, ruleName, type TraceEvent, type TraceNode } from "../netfilter/tree.ts";
import type { Packet } from "../packet.ts";
import { type Answer, answerOf, OTHERWISE } from "./answer.ts";
import { fateText, oddsText, packetText } from "./fate-text.ts";
import { forkOf } from "./flat-fork.ts";

export interface TraceReport {
  readonly packet: Packet;
  /** What was walked, in words: `the plan of mode nftables`. */
  readonly rules: string;
  /** What is assumed about the node, and what was left out. */
  readonly notes: readonly string[];
  readonly root: TraceNode;
}

/** What an answer has of lines, and its list of ends. `isWhole` shows all. */
const SHOWN_LINES = 20;
const SHOWN_ENDS = 9;

/** What is said first of every trace. */
export const headLines = ({ packet, rules, notes }: Omit<TraceReport, "root">): string[] => [
  `Packet: ${packetText(packet)}`,
  `Rules:  ${rules}`,
  ...notes.map((note) => `Note:   ${note}`),
  "",
];

/** The whole text, with a newline at its end. Text from rules and names is escaped. @param isWhole every way, step by step. */
export function traceText({ root, ...head }: TraceReport, isWhole = false): string {
  const answer = answerOf(root);
  const ends = endLines(answer, isWhole);
  const lines = [...headLines(head), "What becomes of it:", ...(isWhole ? ends : cut(ends, SHOWN_ENDS)), ""];
  if (isWhole) nodeLines(root, "", lines);
  else {
    const acting = decidingLines(root, answer, SHOWN_LINES - lines.length - 1);
    lines.push(
      acting.length > 0
        ? "By these rules (--all shows every way, step by step):"
        : "No rule acts on it (--all shows its way).",
      ...acting,
    );
  }
  return `${lines.map(escapeLine).join("\n")}\n`;
}

function cut(lines: readonly string[], room: number): readonly string[] {
  const kept = Math.max(room - 1, 1);
  return lines.length <= room ? lines : [...lines.slice(0, kept), `  … and ${lines.length - kept} more lines: --all`];
}

function endLines({ groups, own, remembered }: Answer, isWhole: boolean): string[] {
  const ends = groups.flatMap(({ condition, brief, shares }) => {
    const title = condition === OTHERWISE ? `  ${OTHERWISE}:` : `  if ${isWhole ? condition : brief}:`;
    const lines = shares.map(({ text, odds }) => `  ${oddsText(odds).padStart(7)}  ${text}`);
    return condition === "" ? lines : [title, ...lines];
  });
  const named = own.length > 3 ? "one of these endpoints" : own.join(" or ");
  return [
    ...ends,
    ...(remembered.length === 0 ? [] : [`  ${affinityText(remembered)} (--new-client leaves this out).`]),
    ...(own.length === 0
      ? []
      : [`  If ${named} is an address of the node (--local), a process of the node gets what is sent there.`]),
  ];
}

function affinityText([first = "", ...others]: readonly string[]): string {
  return others.length > 0 || !first.startsWith("sent to ")
    ? "A client that session affinity remembers stays with its endpoint"
    : `If session affinity remembers the client: 100.0 %  ${first}`;
}

/** For the first end of each group: what acted on the packet, with the jumps that led there and, if there is room, the rule. */
function decidingLines(root: TraceNode, { groups }: Answer, room: number): readonly string[] {
  const steps = groups.flatMap(({ shares: [first] }) => deciding(first === undefined ? [] : pathTo(root, first.text)));
  const rules = new Map(steps.map(({ line, rule }) => [line, rule]));
  const hasRoom = rules.size * 2 <= room;
  const texts = [...rules.values()];
  const lines = [...rules].flatMap(([line, rule], at) =>
    hasRoom && rule !== "" && rule !== texts[at + 1] ? [line, `      ${rule}`] : [line],
  );
  return cut(lines, room);
}

function pathTo({ events, end }: TraceNode, text: string): readonly TraceEvent[] {
  if (end.kind === "end") return fateText(end) === text ? [...events, END_OF_PATH] : [];
  for (const { node } of forkOf(end).branches) {
    const rest = pathTo(node, text);
    if (rest.length > 0) return [...events, ...rest];
  }
  return [];
}

/** So that a path without events is one. */
const END_OF_PATH: TraceEvent = { kind: "remark", text: "" };

function deciding(events: readonly TraceEvent[]): { readonly line: string; readonly rule: string }[] {
  let table = "";
  const ways = new Map<string, string>();
  return events.flatMap((event) => {
    if (event.kind === "stage") table = event.stage;
    if (event.kind === "base-chain") {
      ({ table } = event.chain);
      ways.clear();
    }
    if (event.kind === "policy") return { line: `  ${table}: ${stepWords(event).text}`, rule: "" };
    if (event.kind !== "match") return [];
    const name = `${ways.get(event.chain) ?? `${table} `}${ruleName(event)}`;
    const called = /^(?:jump|goto) (.+)$/.exec(event.said)?.[1];
    if (called !== undefined) ways.set(called, `${name} → `);
    if (called !== undefined || event.said === "return" || event.said === IDLE) return [];
    return { line: `  ${name}: ${event.said}`, rule: event.rule.text };
  });
}

function nodeLines(node: TraceNode, indent: string, lines: string[]): void {
  for (const [index, event] of node.events.entries()) {
    lines.push(...eventLines(event, indent, isIdle(node, index) ? ": nothing matches" : ""));
  }
  const { end } = node;
  if (end.kind === "end") {
    lines.push(`${indent}= ${fateText(end)}`);
    return;
  }
  const { isRandom, branches } = forkOf(end);
  lines.push(`${indent}? ${isRandom ? "at random" : `it depends on ${end.question ?? "what is not known"}`}`);
  for (const [index, { odds, label, node: next }] of branches.entries()) {
    const [sign, below] = index === branches.length - 1 ? ["└─", "   "] : ["├─", "│  "];
    lines.push(`${indent}${sign} ${odds === undefined ? label : `${oddsText(odds)}  ${label}`}`);
    nodeLines(next, `${indent}${below}`, lines);
  }
}

/** Whether nothing matched in a base chain. */
function isIdle({ events, end }: TraceNode, index: number): boolean {
  const next = events[index + 1];
  return next === undefined
    ? end.kind === "end"
    : next.kind === "base-chain" || next.kind === "stage" || next.kind === "routed";
}

/** A step in words; `said` is what the rule or chain did, or why it did nothing. */
export function stepWords(event: TraceEvent): { readonly text: string; readonly said: string | null } {
  switch (event.kind) {
    case "stage":
      return { text: event.stage, said: null };
    case "base-chain":
      return { text: `${event.chain.table}, ${event.chain.chain.name}`, said: null };
    case "not-asked":
      return { text: `${event.chain.table}, ${event.chain.chain.name}`, said: `skipped, ${event.because}` };
    case "skipped":
      return {
        text: `${event.chain}: ${event.count} ${event.count === 1 ? "rule is" : "rules are"} for other addresses and ports`,
        said: null,
      };
    case "no-match": {
      const { rule, condition, observed } = event;
      const said = `no: ${condition}${observed === undefined ? "" : `, and ${observed}`}`;
      return { text: `${ruleName(event)}: ${rule.text}`, said };
    }
    case "match":
      return { text: `${ruleName(event)}: ${event.rule.text}`, said: event.said };
    case "remark":
      return { text: event.text, said: null };
    case "policy":
      return { text: `the policy of ${event.chain.chain.name} is ${event.chain.policy}`, said: null };
    case "routed":
      return { text: `routed to ${event.to}: ${event.because}`, said: null };
  }
}

/** The indentation and sign before a step. */
const LEADS: Readonly<Record<TraceEvent["kind"], string>> = {
  ...{ stage: "", "base-chain": "  ", "not-asked": "  ", skipped: "    · ", "no-match": "    · ", match: "    ✓ " },
  ...{ remark: "      ", policy: "    ", routed: "" },
};

/** The lines of one step. @param remark follows the name of a base chain. */
export function eventLines(event: TraceEvent, indent: string, remark: string): string[] {
  const { text, said } = stepWords(event);
  const line = `${indent}${LEADS[event.kind]}${text}`;
  if (said === null) return [event.kind === "base-chain" ? `${line}${remark}` : line];
  if (event.kind === "not-asked") return [`${line}: ${said}`];
  return [line, `${indent}        ${event.kind === "match" ? "→ " : ""}${said}`];
}
