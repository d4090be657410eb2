/** Manual pages in roff (man(7)), made from what the help texts are made from. As a program it writes them into a folder: `build.mjs` runs it. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { programIdentity } from "../src/program/program-identity.ts";
import { COMMANDS } from "../src/tools/cli/commands.ts";
import { helpParts } from "../src/tools/cli/flags/help.ts";
import type { HelpPart, OptionTable } from "../src/tools/cli/subcommand-options.ts";

interface ManSource {
  /** `kube-proxy-explain` */
  readonly name: string;
  readonly summary: string;
  /** Of `--help`; the first begins with the synopsis. */
  readonly parts: readonly HelpPart[];
  /** The program's version. */
  readonly version: string;
  readonly seeAlso: readonly string[];
}

const HEADING = /^(?:([A-Z][^:.]{0,60}):|(Exit status): (.*))$/;

/** The page, section 1. */
export function manPage({ name, summary, parts, version, seeAlso }: ManSource): string {
  const [first, ...others] = parts;
  const [synopsis, body] = synopsisOf(linesOf(String(first)));
  const lines = [
    `.TH ${name.toUpperCase().replaceAll("-", "\\-")} 1 "" "kube-proxy-ts ${version}" "User Commands"`,
    ".SH NAME",
    `${text(name)} \\- ${text(summary)}`,
    ".SH SYNOPSIS",
    ".nf",
    ...synopsis.map(text),
    ".fi",
    ".SH DESCRIPTION",
    ...textLines(body),
    ...(typeof others[0] === "object" ? [".SH OPTIONS"] : []),
    ...others.flatMap((part) => (typeof part === "string" ? textLines(linesOf(part)) : optionLines(part))),
    ".SH SEE ALSO",
    seeAlso.map((other) => `.BR ${text(other)} (1)`).join("\n"),
  ];
  return `${lines.join("\n")}\n`;
}

const linesOf = (part: string): readonly string[] => part.replace(/\n$/, "").split("\n");

/** Splits off the start of the usage, up to the first empty line. */
function synopsisOf(lines: readonly string[]): readonly [synopsis: readonly string[], body: readonly string[]] {
  const end = lines.indexOf("");
  const head = lines.slice(0, end < 0 ? lines.length : end);
  const synopsis = head.map((line) => line.replace(/^Usage:\s*/, "").trim()).filter((line) => line !== "");
  return [synopsis, end < 0 ? [] : lines.slice(end + 1)];
}

function textLines(lines: readonly string[]): string[] {
  const out: string[] = [];
  let isVerbatim = false;
  const enter = (verbatim: boolean) => {
    if (isVerbatim !== verbatim) out.push(...(verbatim ? [".RS 4", ".nf"] : [".fi", ".RE"]));
    isVerbatim = verbatim;
  };
  for (const line of lines) {
    const [, title, status, rest] = HEADING.exec(line) ?? [];
    const heading = title ?? status;
    if (line === "") out.push(isVerbatim ? "" : ".PP");
    else if (heading !== undefined) {
      enter(false);
      out.push(`.SH ${text(heading.toUpperCase())}`, ...(rest === undefined ? [] : [text(rest)]));
    } else {
      enter(line.startsWith("  "));
      out.push(text(isVerbatim ? line.slice(2) : line));
    }
  }
  enter(false);
  return out;
}

function optionLines(table: OptionTable): string[] {
  return Object.entries(table).flatMap(([label, meaning]) => {
    if (meaning === "") return [];
    const lines = meaning.split("\n").map((line) => text(line.trim()));
    return [".TP", `\\fB${text(label.replace(/\.{3}$/, ""))}\\fR`, ...lines];
  });
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
  const [about, ...parts] = helpParts();
  const first = `Usage: kube-proxy [flags]\n       kube-proxy COMMAND …\n\n${about}`;
  pages.set(
    "kube-proxy.1",
    manPage({ name: "kube-proxy", summary, parts: [first, ...parts], version, seeAlso: commands }),
  );
  for (const { name, summary: own, load } of COMMANDS) {
    const page = { name: `kube-proxy-${name}`, summary: own, version, seeAlso: ["kube-proxy"] };
    pages.set(`kube-proxy-${name}.1`, manPage({ ...page, parts: (await load()).line.parts }));
  }
  return pages;
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) throw new Error("give the folder to write to");
  mkdirSync(folder, { recursive: true });
  for (const [name, page] of await manPages()) writeFileSync(join(folder, name), page);
}
