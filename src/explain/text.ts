/** An explanation for people: sentences and small tables, safe for a terminal. Pure. */

import { factsText } from "../dataplane/socket-words.ts";
import { joinHostPort } from "../net/ip.ts";
import type { ExplainedFrontend, ExplainedUse, PortExplanation } from "./explanation.ts";
import { safe } from "./safe-text.ts";
import { tableText } from "./table.ts";
import { encounterWords, KIND_WORDS, POSITION_WORDS } from "./words.ts";

export interface TextOptions {
  /** Of the terminal, in characters. @default no limit */
  readonly width?: number | undefined;
  /** What is in the kernel for it, too. @default false */
  readonly showsRules?: boolean;
}

/** One service port of one family: the answer first. */
export function explanationText(explained: PortExplanation, { width, showsRules = false }: TextOptions = {}): string {
  const { servicePort, protocol, type, node, zone, mode, family } = explained;
  const place = `on ${node}${zone === null ? "" : ` (${zone})`}`;
  const parts = [
    `${servicePort} ${protocol}, ${type}, ${place}, ${mode} mode, ${family}\n`,
    section("Addresses", explained.frontends.map((frontend) => frontendText(frontend, width)).join("")),
    section("Endpoints", endpointsText(explained, width)),
    section("Why", explained.decisions.map((sentence) => sentenceText(sentence, "  ", width)).join("")),
    section(
      "Passed over",
      explained.passedOver.map(({ slice, why }) => sentenceText(`${slice}: ${why}`, "  ", width)).join(""),
    ),
    showsRules ? section("In the kernel", kernelText(explained)) : "",
    section("Counted", (explained.trafficNotes ?? []).map((one) => sentenceText(one, "  ", width)).join("")),
  ];
  return safe(parts.filter((part) => part !== "").join("\n"));
}

/** Broken between words where the terminal ends. */
export function sentenceText(sentence: string, indent: string, width: number | undefined): string {
  return tableText([[sentence]], indent, width);
}

function section(title: string, body: string): string {
  return body === "" ? "" : `${title}\n${body}`;
}

/** `cluster IP 10.96.0.10:80`, `node port 30080`. */
export function frontendTitle({ kind, address, port }: Pick<ExplainedFrontend, "kind" | "address" | "port">): string {
  if (address === null) return `${KIND_WORDS[kind]} ${port}`;
  return `${KIND_WORDS[kind]} ${joinHostPort(address, port)}`;
}

function frontendText(frontend: ExplainedFrontend, width: number | undefined): string {
  const { policy, owner, answersAt } = frontend;
  const where = answersAt === null ? "" : ` at ${answersAt}`;
  const title = sentenceText(
    `${frontendTitle(frontend)}${where}, policy ${policy}${trafficText(frontend)}`,
    "  ",
    width,
  );
  if (owner !== null) return `${title}    belongs to ${owner}, and does not lead here\n`;
  // Positions that meet the same stand in one line.
  const groups = new Map<string, string[]>();
  for (const encounter of frontend.clients) {
    const words = encounterWords(encounter);
    const group = groups.get(words) ?? [];
    group.push(POSITION_WORDS[encounter.position]);
    groups.set(words, group);
  }
  const table = tableText(
    Array.from(groups, ([words, positions]) => [`${positions.join(", ")}:`, words]),
    "    ",
    width,
  );
  const { sockets } = frontend;
  return `${title}${table}${sockets === undefined ? "" : `    the kernel now, at connect(): ${factsText(sockets)}\n`}`;
}

function trafficText({ open, counted }: ExplainedFrontend): string {
  return open === undefined ? "" : `: ${countText(open)} open, ${countText(counted)} counted`;
}

/** `12`, `?` for what is not known; empty for what was not asked for. */
export function countText(count: number | null | undefined): string {
  return count === undefined ? "" : count === null ? "?" : String(count);
}

function endpointsText(
  { endpoints, servicePort }: Pick<PortExplanation, "endpoints" | "servicePort">,
  width: number | undefined,
): string {
  if (endpoints.length === 0) return "  none\n";
  const hasLocal = endpoints.some(({ local }) => local !== null);
  const hasCluster = endpoints.some(({ cluster }) => cluster !== null);
  const hasTraffic = endpoints.some(({ open }) => open !== undefined);
  const hasPods = endpoints.some(({ pod }) => pod !== null);
  const head = [
    "ADDRESS",
    ...(hasPods ? ["POD"] : []),
    "NODE",
    "STATE",
    ...(hasCluster ? ["CLUSTER POLICY"] : []),
    ...(hasLocal ? ["LOCAL POLICY"] : []),
    ...(hasTraffic ? ["OPEN", "COUNTED"] : []),
  ];
  const rows = endpoints.map(({ address, pod, node, state, cluster, local, isLocal, open, counted }) => [
    address,
    ...(hasPods ? [podText(pod, servicePort)] : []),
    node === "" ? "-" : isLocal ? `${node} (here)` : node,
    state,
    ...(hasCluster ? [useText(cluster)] : []),
    ...(hasLocal ? [useText(local)] : []),
    ...(hasTraffic ? [countText(open), countText(counted)] : []),
  ]);
  return tableText([head, ...rows], "  ", width);
}

/** A pod's name; with its namespace where that is not the Service's. */
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

/** `33.3 %`, `100 %`. */
export function shareText(share: number): string {
  return `${Number((share * 100).toFixed(1))} %`;
}

function kernelText({ kernel }: PortExplanation): string {
  const byPlace = Map.groupBy(kernel, ({ kind, where }) => `${kind} in ${where}`);
  let text = "";
  for (const [place, parts] of byPlace) {
    text += `  ${place}\n`;
    for (const [index, { name, purpose }] of parts.entries()) {
      // Neighbours with the same purpose stand together, with the purpose after the last.
      const isLast = parts[index + 1]?.purpose !== purpose;
      text += `    ${name}\n${isLast && purpose !== "" ? `      ${purpose}\n` : ""}`;
    }
  }
  return text;
}
