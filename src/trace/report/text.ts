/** A trace for people: the path step by step, indented where it forks, and its outcomes. */
import { escapeLine } from "../../logging/escape.ts";
import { type Branch, outcomesOf, ruleName, type TraceEvent, type TraceNode } from "../netfilter/tree.ts";
import type { Packet } from "../packet.ts";
import { fateShares, fateText, oddsText, packetText } from "./fate-text.ts";
import { flatBranches } from "./flat-fork.ts";

export interface TraceReport {
  readonly packet: Packet;
  /** What was walked, in words: `the plan of mode nftables`. */
  readonly rules: string;
  /** What is assumed about the node, and what was left out. */
  readonly notes: readonly string[];
  readonly root: TraceNode;
}

/** Further ends are only counted. */
const SHOWN_FATES = 40;
const SHOWN_BRANCHES = 12;

/** The whole text, with a newline at its end. Text from rules and names is escaped. */
export function traceText({ packet, rules, notes, root }: TraceReport): string {
  const lines = [`Packet: ${packetText(packet)}`, `Rules:  ${rules}`, ...notes.map((note) => `Note:   ${note}`), ""];
  nodeLines(root, "", lines);
  lines.push("", "What becomes of it:", ...fateLines(root));
  return `${lines.map(escapeLine).join("\n")}\n`;
}

function fateLines(root: TraceNode): string[] {
  const shares = fateShares(outcomesOf(root));
  const lines: string[] = [];
  let assumed = "";
  for (const { text, odds, assumptions } of shares.slice(0, SHOWN_FATES)) {
    const condition = assumptions.join(", and ");
    if (condition !== assumed) lines.push(`  if ${condition}:`);
    assumed = condition;
    lines.push(`  ${oddsText(odds).padStart(7)}  ${text}`);
  }
  const hidden = shares.length - SHOWN_FATES;
  if (hidden > 0) lines.push(`  … and ${hidden} more: --output json has all`);
  return lines;
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
  const isRandom = end.branches.every(({ odds }) => odds !== undefined);
  const branches = isRandom ? flatBranches(end) : end.branches;
  lines.push(`${indent}? ${isRandom ? "at random" : `it depends on ${end.question ?? "what is not known"}`}`);
  branchLines(branches, indent, lines);
}

function branchLines(branches: readonly Branch[], indent: string, lines: string[]): void {
  const shown = branches.length > SHOWN_BRANCHES ? branches.slice(0, SHOWN_BRANCHES) : branches;
  const ways = new Map<string, string>();
  for (const [index, { odds, label, node }] of shown.entries()) {
    const isLast = index === branches.length - 1;
    const name = odds === undefined ? label : `${oddsText(odds)}  ${label}`;
    const way = wayOf(node);
    const earlier = ways.get(way);
    if (earlier === undefined) {
      ways.set(way, label);
      lines.push(`${indent}${isLast ? "└" : "├"}─ ${name}`);
      nodeLines(node, `${indent}${isLast ? "   " : "│  "}`, lines);
    } else {
      lines.push(`${indent}${isLast ? "└" : "├"}─ ${name}: the same way as ${earlier}`);
    }
  }
  const hidden = branches.length - shown.length;
  if (hidden > 0) lines.push(`${indent}└─ … and ${hidden} more branches: --output json has all`);
}

/** Equal for branches with the same actions in the same stages. Chain names do not count: they differ by endpoint. */
function wayOf({ events, end }: TraceNode): string {
  const steps = events.flatMap((event) => {
    if (event.kind === "match") return [event.said.split(" ")[0]];
    if (event.kind === "stage") return [event.stage];
    return event.kind === "no-match" || event.kind === "skipped" ? [] : [event.kind];
  });
  const last =
    end.kind === "end" ? [end.fate.kind, end.packet.isMasqueraded] : end.branches.map(({ node }) => wayOf(node));
  return JSON.stringify([steps, last]);
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
      return { text: `${event.chain}: ${event.count} rules are for other addresses and ports`, said: null };
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
