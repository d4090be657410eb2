/** The text of `--help`. Reference start.md §2. */
import { findGate } from "../../config/feature-gates.ts";
import type { AnyFlag } from "../../config/flag.ts";
import { KNOWN_GATES } from "../../config/known-feature-gates.ts";
import { CURRENT_RELEASE } from "../../config/release.ts";
import { tableText } from "../../explain/table.ts";
import { COMMANDS } from "../commands.ts";
import { FLAGS } from "./table.ts";

const SYNOPSIS = `kube-proxy makes the Services of a Kubernetes cluster reachable from this node and its pods. It watches Services and
EndpointSlices and programs the node's kernel so that connections to a service address end at one of its endpoints.

This is kube-proxy-ts: it takes the flags and the configuration file of upstream's kube-proxy ${CURRENT_RELEASE.name} and writes the same
rules, or those of another release that --compatibility names.`;

const USAGE = `Usage:
  kube-proxy [flags]                 runs the proxy
${COMMANDS.map(({ name, summary }) => `  kube-proxy ${`${name} …`.padEnd(24)}${summary}`).join("\n")}

Commands are extensions of kube-proxy-ts. They need root only to ask this host's kernel. Each has its own --help.`;

function usageText(): string {
  return `${USAGE}\n\nFlags:\n${visibleFlags().map(flagText).join("")}`;
}

/** The text of `--help`. */
export function helpText(): string {
  return `${SYNOPSIS}\n\n${usageText()}\nFeature gates (name, default, stage):\n${gateLines().join("\n")}\n`;
}

function visibleFlags(): readonly AnyFlag[] {
  return FLAGS.filter((flag) => flag.deprecated === undefined);
}

function flagText(flag: AnyFlag): string {
  const short = flag.shorthand === undefined ? "    " : `-${flag.shorthand}, `;
  const word = flag.word === "" ? "" : ` ${flag.word}`;
  const initial = flag.defaultText === "" ? "" : ` (default ${shownDefault(flag)})`;
  const extension = flag.isExtension ? " [extension of kube-proxy-ts]" : "";
  return `  ${short}--${flag.name}${word}${initial}${extension}\n${tableText([[flag.help]], " ".repeat(10), 120)}`;
}

function shownDefault(flag: AnyFlag): string {
  return flag.word === "string" || flag.word === "ipport" ? `"${flag.defaultText}"` : flag.defaultText;
}

/** The gates that can still change: those that are neither GA nor deprecated, as upstream lists them. */
function gateLines(): readonly string[] {
  return KNOWN_GATES.flatMap((group) => group.names.trim().split(/\s+/))
    .sort()
    .flatMap((name) => {
      const spec = findGate(name);
      if (spec === undefined || spec.stage === "GA" || spec.stage === "Deprecated") return [];
      return [`  ${name}=true|false (${spec.stage.toUpperCase()} - default=${spec.default})`];
    });
}
