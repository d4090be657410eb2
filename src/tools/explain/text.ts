/** An explanation for people: sentences and small tables, safe for a terminal. */

import { factsText } from "../../contract/socket-words.ts";
import {
  type ExplainedEndpoint,
  type ExplainedFrontend,
  type ExplainedUse,
  isUsed,
  type PortExplanation,
} from "./explanation.ts";
import { safe } from "./safe-text.ts";
import { tableText } from "./table.ts";
import { encounterWords, frontendTitle, shareText, whoWords } from "./words.ts";

export interface TextOptions {
  /** The width of the terminal, in characters. @default no limit */
  readonly width?: number | undefined;
  /** Whether to show all endpoints and all causes. @default false */
  readonly showsWhy?: boolean;
  /** Whether to show what the kernel has for it. @default false */
  readonly showsRules?: boolean;
  /** A remark after the mode, such as `assumed`. @default none */
  readonly assumed?: string | undefined;
}

/** The most lines of an answer, unless the causes alone have more. */
const ANSWER_LINES = 15;

/** An answer of `explain`. @param because how what was asked relates to the service ports. */
export function answerText(
  because: readonly string[],
  servicePorts: readonly PortExplanation[],
  options: TextOptions,
): string {
  const head = safe(because.map((sentence) => sentenceText(sentence, "", options.width)).join(""));
  const byPort = Map.groupBy(servicePorts, ({ servicePort, protocol }) => `${servicePort} ${protocol}`);
  const explanations = Array.from(byPort.values(), (families) => familiesText(families, options));
  return [head, ...explanations].filter((part) => part !== "").join("\n");
}

/** One service port of one family: what clients meet, and why. */
export function explanationText(explained: PortExplanation, options: TextOptions = {}): string {
  const { width, showsWhy = false, showsRules = false, assumed } = options;
  const { servicePort, protocol, type, node, zone, mode, family } = explained;
  const place = `on ${node}${zone === null ? "" : ` (${zone})`}`;
  const sentences = (all: readonly string[]) => all.map((one) => sentenceText(one, "  ", width)).join("");
  const addresses = frontendGroups(explained.frontends, width);
  const causes = showsWhy ? [...explained.causes, ...explained.decisions] : explained.causes;
  const head = `${servicePort} ${protocol}, ${type}, ${place}, ${mode} mode${assumed === undefined ? "" : ` (${assumed})`}, ${family}`;
  const answer = [sentenceText(head, "", width), addresses, section("Why", sentences(causes))].join("");
  const room = showsWhy ? undefined : ANSWER_LINES - lineCount(answer);
  const passedOver = explained.passedOver.map(({ slice, why }) => `${slice}: ${why}`);
  return safe(
    [
      answer,
      endpointsText(explained, width, room),
      showsWhy ? section("Passed over", sentences(passedOver)) : "",
      showsRules ? section("In the kernel", kernelText(explained)) : "",
      section("Counted", sentences(explained.trafficNotes ?? [])),
    ].join(""),
  );
}

/** Wraps a sentence between words to the width of the terminal. */
export function sentenceText(sentence: string, indent: string, width: number | undefined): string {
  return tableText([[sentence]], indent, width);
}

function section(title: string, body: string): string {
  return body === "" ? "" : `${title}\n${body}`;
}

/** Groups frontends at which clients meet the same. */
function frontendGroups(frontends: readonly ExplainedFrontend[], width: number | undefined): string {
  const groups = Map.groupBy(frontends, (frontend) => clientsText(frontend, width));
  return Array.from(groups, ([clients, own]) => own.map((one) => titleText(one, width)).join("") + clients).join("");
}

function titleText(frontend: ExplainedFrontend, width: number | undefined): string {
  const where = frontend.answersAt === null ? "" : ` at ${frontend.answersAt}`;
  return sentenceText(
    `${frontendTitle(frontend)}${where}${frontend.policy === "Local" ? ", policy Local" : ""}${trafficText(frontend)}`,
    "  ",
    width,
  );
}

function clientsText({ owner, clients, sockets }: ExplainedFrontend, width: number | undefined): string {
  if (owner !== null) return sentenceText(`belongs to ${owner}, which answers there`, "    ", width);
  // One line for all positions that meet the same.
  const byWords = Map.groupBy(clients, encounterWords);
  const met = Array.from(byWords, ([words, own]) => `${whoWords(own)}: ${words}`);
  const live = sockets === undefined ? [] : [`the kernel now, at connect(): ${factsText(sockets)}`];
  // Continuation lines are indented further.
  return [...met, ...live]
    .map((line) => {
      const whole = sentenceText(line, "    ", width);
      return lineCount(whole) === 1 ? whole : sentenceText(line, "      ", width).slice(2);
    })
    .join("");
}

function trafficText({ open, counted, refused = 0, dropped = 0 }: ExplainedFrontend): string {
  if (open === undefined) return "";
  return `: ${countText(open)} open, ${countText(counted)} counted${turnedAwayText(refused, dropped)}`;
}

/** `, 3 refused, 2 dropped`, without zero counts. */
export function turnedAwayText(refused = 0, dropped = 0): string {
  return `${refused > 0 ? `, ${refused} refused` : ""}${dropped > 0 ? `, ${dropped} dropped` : ""}`;
}

/** `12`; `?` if not known; empty if not asked. */
export function countText(count: number | null | undefined): string {
  return count === undefined ? "" : count === null ? "?" : String(count);
}

/** @param room how many lines they may take. @default no limit */
function endpointsText(explained: PortExplanation, width: number | undefined, room = Number.POSITIVE_INFINITY): string {
  const { endpoints } = explained;
  if (endpoints.length === 0) return "";
  const whole = section("Endpoints", endpointTable(explained, endpoints, width));
  if (lineCount(whole) <= room) return whole;
  const left = sentenceText(`${usedText(explained)} (--why lists them)`, "  ", width);
  for (let count = Math.min(endpoints.length - 1, room); count > 0; count -= 1) {
    const text = section("Endpoints", endpointTable(explained, endpoints.slice(0, count), width) + left);
    if (lineCount(text) <= room) return text;
  }
  return left;
}

/** `2 of 3 endpoints are used` */
function usedText({ endpoints }: PortExplanation): string {
  return `${endpoints.filter(isUsed).length} of ${endpoints.length} endpoints ${endpoints.length === 1 ? "is" : "are"} used`;
}

/**
 * The families of one service port. A family whose clients meet the same as in the first prints only what differs.
 *
 * @param all in the order of the families.
 */
function familiesText(all: readonly PortExplanation[], options: TextOptions = {}): string {
  const [first, ...others] = all;
  if (first === undefined) return "";
  const parts = others.map((other) => {
    const isSame = options.showsWhy !== true && options.showsRules !== true && other.trafficNotes === undefined;
    if (!isSame || metText(first) !== metText(other)) return `\n${explanationText(other, options)}`;
    const places = other.frontends.map(frontendTitle);
    // The number of usable endpoints is part of `usedText`.
    const known = new Set(first.causes.map(withoutCount));
    const news = other.causes.filter((cause) => !known.has(withoutCount(cause)));
    const same = `${other.family}: clients meet the same, at ${places.join(", ")}; ${usedText(other)}.`;
    return safe([same, ...news].map((one) => sentenceText(one, "", options.width)).join(""));
  });
  return [explanationText(first, options), ...parts].join("");
}

const withoutCount = (cause: string): string => cause.replace(/\(\d+ usable\)/, "");

/** What clients meet, except for addresses. */
function metText({ frontends }: PortExplanation): string {
  const met = frontends.map(({ kind, port, policy, owner, clients }) => [kind, port, policy, owner, clients]);
  return JSON.stringify(met);
}

const lineCount = (text: string): number => text.split("\n").length - 1;

function endpointTable(
  { servicePort }: PortExplanation,
  endpoints: readonly ExplainedEndpoint[],
  width: number | undefined,
): string {
  const hasTraffic = endpoints.some(({ open }) => open !== undefined);
  const has = (what: "pod" | "cluster" | "local") => endpoints.some((one) => one[what] !== null);
  const columns: readonly (readonly [string, boolean, (one: ExplainedEndpoint) => string])[] = [
    ["ADDRESS", true, ({ address }) => address],
    ["POD", has("pod"), ({ pod }) => podText(pod, servicePort)],
    ["NODE", true, ({ node, isLocal }) => (node === "" ? "-" : isLocal ? `${node} (here)` : node)],
    ["STATE", true, ({ state }) => state],
    ["CLUSTER POLICY", has("cluster"), ({ cluster }) => useText(cluster)],
    ["LOCAL POLICY", has("local"), ({ local }) => useText(local)],
    ["OPEN", hasTraffic, ({ open }) => countText(open)],
    ["COUNTED", hasTraffic, ({ counted }) => countText(counted)],
  ];
  const shown = columns.filter(([, isShown]) => isShown);
  const rows = endpoints.map((one) => shown.map(([, , cellOf]) => cellOf(one)));
  return tableText([shown.map(([name]) => name), ...rows], "  ", width);
}

/** A pod's name, with its namespace if it differs from the Service's. */
function podText(pod: string | null, servicePort: string): string {
  if (pod === null) return "-";
  const namespace = servicePort.slice(0, servicePort.indexOf("/") + 1);
  return pod.startsWith(namespace) ? pod.slice(namespace.length) : pod;
}

function useText(use: ExplainedUse | null): string {
  if (use === null) return "-";
  if (!use.used) return `left out: ${use.why}`;
  return `used, ${shareText(use.share)}${use.why === "ready" ? "" : `: ${use.why}`}`;
}

function kernelText({ kernel }: PortExplanation): string {
  const byPlace = Map.groupBy(kernel, ({ kind, where }) => `${kind} in ${where}`);
  let text = "";
  for (const [place, parts] of byPlace) {
    text += `  ${place}\n`;
    for (const [index, { name, purpose }] of parts.entries()) {
      // Prints the purpose once, after the last of several neighbours that share it.
      const isLast = parts[index + 1]?.purpose !== purpose;
      text += `    ${name}\n${isLast && purpose !== "" ? `      ${purpose}\n` : ""}`;
    }
  }
  return text;
}
