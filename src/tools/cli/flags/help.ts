/** The text of `--help`. Reference start.md §2. */
import { findGate } from "../../../contract/config/feature-gates.ts";
import type { AnyFlag } from "../../../contract/config/flag.ts";
import { KNOWN_GATES } from "../../../contract/config/known-feature-gates.ts";
import { CURRENT_RELEASE } from "../../../contract/config/release.ts";
import { tableText } from "../../explain/table.ts";
import { COMMANDS } from "../commands.ts";
import type { HelpPart } from "../subcommand-options.ts";
import { FLAGS } from "./table.ts";

const SYNOPSIS = `kube-proxy makes the Services of a Kubernetes cluster reachable from this node and its pods. It watches Services and
EndpointSlices and programs the node's kernel so that connections to a service address end at one of its endpoints.

This is kube-proxy-ts: it takes the flags and the configuration file of upstream's kube-proxy ${CURRENT_RELEASE.name} and writes the same
rules, or those of another release that --compatibility names.
`;

const USAGE = `
Usage:
  kube-proxy [flags]                 runs the proxy
${COMMANDS.map(({ name, summary }) => `  kube-proxy ${`${name} …`.padEnd(24)}${summary}`).join("\n")}

Commands are extensions of kube-proxy-ts. They need root only to ask this host's kernel. Each has its own --help.

Flags:
`;

/** What `--help` is made of. */
export function helpParts(): readonly HelpPart[] {
  const flags = FLAGS.filter((flag) => flag.deprecated === undefined).map((flag) => [labelOf(flag), flag.help]);
  return [
    SYNOPSIS,
    USAGE,
    Object.fromEntries(flags),
    `\nFeature gates (name, default, stage):\n${gateLines().join("\n")}\n`,
  ];
}

/** The text of `--help`. */
export function helpText(): string {
  return helpParts()
    .map((part) => (typeof part === "string" ? part : Object.entries(part).map(flagText).join("")))
    .join("");
}

function labelOf(flag: AnyFlag): string {
  const short = flag.shorthand === undefined ? "" : `-${flag.shorthand}, `;
  const word = flag.word === "" ? "" : ` ${flag.word}`;
  const initial = flag.defaultText === "" ? "" : ` (default ${shownDefault(flag)})`;
  return `${short}--${flag.name}${word}${initial}${flag.isExtension ? " [extension of kube-proxy-ts]" : ""}`;
}

function flagText([label, help]: readonly [string, string]): string {
  return `  ${label.startsWith("--") ? "    " : ""}${label}\n${tableText([[help]], " ".repeat(10), 120)}`;
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
