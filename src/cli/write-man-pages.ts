/** Manual pages in roff (man(7)), made from the help texts. As a program it writes them into a folder: `scripts/build.mjs` runs it. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { programIdentity } from "../program/program-identity.ts";
import { COMMANDS } from "./commands.ts";
import { helpText } from "./flags/help.ts";

interface ManSource {
  /** `kube-proxy-explain` */
  readonly name: string;
  readonly summary: string;
  /** The text of `--help`. */
  readonly usage: string;
  /** The program's version. */
  readonly version: string;
  readonly seeAlso: readonly string[];
}

/** An option of a help text: `  -f, --filename DIR|FILE|-    manifests …`. */
const OPTION = /^ {2,6}((?:-\w, )?--?[\w-]+(?:[ =]\S+)*?)(?: {2,}(.*))?$/;
const HEADING = /^(?:([A-Z][^:.]{0,60}):|(Exit status): (.*))$/;

/** The page, section 1. */
export function manPage({ name, summary, usage, version, seeAlso }: ManSource): string {
  const [synopsis, body] = synopsisOf(usage.trimEnd().split("\n"));
  const lines = [
    `.TH ${name.toUpperCase().replaceAll("-", "\\-")} 1 "" "kube-proxy-ts ${version}" "User Commands"`,
    ".SH NAME",
    `${text(name)} \\- ${text(summary)}`,
    ".SH SYNOPSIS",
    ".nf",
    ...synopsis.map(text),
    ".fi",
    ".SH DESCRIPTION",
    ...bodyLines(body),
    ".SH SEE ALSO",
    seeAlso.map((other) => `.BR ${text(other)} (1)`).join("\n"),
  ];
  return `${lines.join("\n")}\n`;
}

/** Splits off the start of the usage, up to the first empty line. */
function synopsisOf(lines: readonly string[]): readonly [synopsis: readonly string[], body: readonly string[]] {
  const end = lines.indexOf("");
  const head = lines.slice(0, end < 0 ? lines.length : end);
  const synopsis = head.map((line) => line.replace(/^Usage:\s*/, "").trim()).filter((line) => line !== "");
  return [synopsis, end < 0 ? [] : lines.slice(end + 1)];
}

/** Inside a paragraph, verbatim lines, or an option. */
type State = "text" | "verbatim" | "option";

function bodyLines(lines: readonly string[]): string[] {
  const out: string[] = [];
  let state = "text" as State;
  let hasHeading = false;
  const enter = (next: State) => {
    if (state === "verbatim" && next !== "verbatim") out.push(".fi", ".RE");
    if (next === "verbatim" && state !== "verbatim") out.push(".RS 4", ".nf");
    state = next;
  };
  for (const line of lines) {
    const [, title, status, rest] = HEADING.exec(line) ?? [];
    const heading = title ?? status;
    const [, option, meaning] = OPTION.exec(line) ?? [];
    if (line === "") {
      if (state === "verbatim") out.push("");
      else out.push(".PP");
    } else if (heading !== undefined) {
      enter("text");
      hasHeading = true;
      out.push(`.SH ${text(heading.toUpperCase())}`);
      if (rest !== undefined) out.push(text(rest));
    } else if (option?.startsWith("-") === true) {
      enter("option");
      if (!hasHeading) out.push(".SH OPTIONS");
      hasHeading = true;
      out.push(".TP", `\\fB${text(option)}\\fR`, ...(meaning === undefined ? [] : [text(meaning)]));
    } else if (line.startsWith("  ") && state === "option") out.push(text(line.trim()));
    else if (line.startsWith("  ")) {
      enter("verbatim");
      out.push(text(line.slice(2)));
    } else {
      enter("text");
      out.push(text(line));
    }
  }
  enter("text");
  return out;
}

/** Escapes a line so that roff prints it as it is. */
function text(line: string): string {
  const escaped = line.replaceAll("\\", "\\e").replaceAll("-", "\\-").replaceAll("…", "\\[u2026]");
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}

/** The pages by file name. */
export async function manPages(): Promise<ReadonlyMap<string, string>> {
  const { version } = programIdentity();
  const commands = COMMANDS.map(({ name }) => `kube-proxy-${name}`);
  const pages = new Map<string, string>();
  const summary = "makes the Services of a Kubernetes cluster reachable from a node and its pods";
  // The synopsis comes first in a page.
  const [about = "", ...rest] = helpText().split("\n\nUsage:\n");
  const usage = `Usage: kube-proxy [flags]\n       kube-proxy COMMAND …\n\n${about}\n\nCommands:\n${rest.join("\n\n")}`;
  pages.set("kube-proxy.1", manPage({ name: "kube-proxy", summary, usage, version, seeAlso: commands }));
  for (const { name, summary: own, load } of COMMANDS) {
    const page = { name: `kube-proxy-${name}`, summary: own, version, seeAlso: ["kube-proxy"] };
    pages.set(`kube-proxy-${name}.1`, manPage({ ...page, usage: (await load()).usage }));
  }
  return pages;
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) throw new Error("give the folder to write to");
  mkdirSync(folder, { recursive: true });
  for (const [name, page] of await manPages()) writeFileSync(join(folder, name), page);
}
