/**
 * docs/debugging.md: its commands run in this process, and what they print. In the page, `…` alone in a line stands for lines that
 * are left out. The cluster is `examples/`; `changed/` is the same with the pods of node-b not ready; a pipe gets node-a's iptables
 * rules without one.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { diff } from "../../src/cli/diff.ts";
import { explain } from "../../src/cli/explain.ts";
import { render } from "../../src/cli/render.ts";
import { trace } from "../../src/cli/trace.ts";
import { examplesAsJson, runCommand } from "../cli/run-command.ts";
import { CHECKOUT } from "./markdown.ts";

/** The page, from the top of the checkout. */
export const DEBUGGING_PAGE = "docs/debugging.md";

/** A command of the page, with what the page says that it prints. */
export interface ShownCommand {
  readonly command: string;
  readonly shown: string;
}

export function shownCommands(): ShownCommand[] {
  const page = readFileSync(join(CHECKOUT, DEBUGGING_PAGE), "utf8");
  const pairs = page.matchAll(/```sh\n(.*)\n```\n\n```text\n([^`]*)```\n/g);
  return Array.from(pairs, ([, command = "", shown = ""]) => ({ command, shown }));
}

const EXAMPLES = examplesAsJson();
const RUNNERS: Readonly<Record<string, typeof explain>> = { diff, explain, trace };

/** What a command of the page prints, both outputs. */
export async function printedBy(command: string): Promise<string> {
  const [, piped = "", name = "", rest = ""] = /^(.*\| )?kube-proxy (\S+) (.*)$/.exec(command) ?? [];
  const runner = RUNNERS[name];
  if (runner === undefined) throw new Error(`no command ${name}`);
  const words = rest.split(" ");
  // Standard input is read at once; files are read by a thread that must be started first.
  const usesFiles = name === "diff";
  using files = usesFiles ? new ExampleFiles() : undefined;
  const argv = words.map((word) => (word === "examples" && !usesFiles ? "-" : (files?.paths[word] ?? word)));
  const { out, err } = await runCommand(runner, argv, piped === "" ? EXAMPLES : await brokenRules());
  return out + err;
}

/** Files that stand for the folders of the page. */
class ExampleFiles implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "kpts-debugging-"));
  readonly paths: Readonly<Record<string, string>> = {
    examples: join(this.#folder, "examples.json"),
    changed: join(this.#folder, "changed.json"),
  };

  constructor() {
    const isNotReady = /("nodeName":"node-b","conditions":\{"ready":)true/g;
    const { examples = "", changed = "" } = this.paths;
    writeFileSync(examples, EXAMPLES);
    writeFileSync(changed, EXAMPLES.replaceAll(isNotReady, "$1false"));
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** What iptables-save prints on a node-a that has lost a rule. */
async function brokenRules(): Promise<string> {
  const form = ["--mode", "iptables", "--family", "ipv4", "--hostname-override", "node-a", "-o", "iptables-save"];
  const { out } = await runCommand(render, ["-f", "-", ...form], EXAMPLES);
  return out.replace(/^-A KUBE-SVC-\S+ .*shop\/web:http -> 10\.180\.0\.12:8080.*\n/m, "");
}

/** Whether the printed lines are those shown, but for what `…` stands for. Pure. */
export function isAsShown(printed: string, shown: string): boolean {
  const [first = "", ...others] = shown.split(/^…\n/m);
  if (!printed.startsWith(first)) return false;
  const last = others.pop();
  if (last === undefined) return printed === first;
  let from = first.length;
  for (const part of others) {
    // Whole lines: a part begins where a line does.
    const at = `\n${printed}`.indexOf(`\n${part}`, from);
    if (at < from) return false;
    from = at + part.length;
  }
  return `\n${printed.slice(from)}`.endsWith(`\n${last}`) || last === "";
}
