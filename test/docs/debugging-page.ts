/**
 * docs/debugging.md: its commands run in this process, and what they print. In the page, `…` alone in a line stands for lines that
 * are left out. The cluster is `examples/`; `changed/` is the same with the pods of node-b not ready, `mistaken/` with a hint taken away, a
 * port of another name, and a selector that matches nothing; a pipe gets node-a's iptables rules without one; `DUMP` is what a sysdump of node-a has of the examples, and a daemon of theirs answers at the default socket.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { NO_CONNTRACK } from "../../src/kernel/conntrack/conntrack.ts";
import { ip } from "../../src/model/testing/records.ts";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { flows } from "../../src/tools/cli/flows.ts";
import type { FlowSource } from "../../src/tools/cli/flows-watch.ts";
import { render } from "../../src/tools/cli/render.ts";
import { services } from "../../src/tools/cli/services.ts";
import { status } from "../../src/tools/cli/status.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { objectsList } from "../../src/tools/explain/objects-list.ts";
import { daemonAt } from "../cli/inspected-daemon.ts";
import { type Command, examplesAsJson, runCommand } from "../cli/run-command.ts";
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
const DUMP = "DUMP";
/** What a sysdump has of the objects. */
const DUMPED = JSON.stringify(objectsList(projectObjects([JSON.parse(EXAMPLES)], "examples", { keepsPods: true })));
const RUNNERS: Readonly<Record<string, Command>> = {
  ...{ diff, explain, trace },
  flows: (argv, output, input) => flows(argv, output, input, STALE),
};

const OF_WEB = {
  sourceIP: ip("10.180.0.77"),
  sourcePort: 40_001,
  destinationIP: ip("10.96.0.10"),
  destinationPort: 80,
};
const ANSWERS = { replySourcePort: 8080, replyDestinationIP: ip("10.180.0.77"), replyDestinationPort: 40_001 };
/** A kernel in which a client is connected to a pod of shop/web that is gone, and another to one that is there. */
const STALE: FlowSource = {
  open: () => ({
    async readFlows(family, _filter, begin) {
      const visit = begin();
      const state = { protocol: "TCP", state: "ESTABLISHED", isAnswered: true, isAssured: true } as const;
      for (const [index, address] of ["10.180.0.99", "10.180.0.11"].entries())
        if (family === "IPv4") visit({ ...OF_WEB, ...ANSWERS, ...state, id: index + 1, replySourceIP: ip(address) });
      return true;
    },
    [Symbol.asyncDispose]: async () => {},
  }),
  follow: async () => {},
  ownAddresses: async () => new Set([ip("10.200.0.2")]),
};

/** What a command of the page prints, both outputs. */
export async function printedBy(command: string): Promise<string> {
  const [, piped = "", name = "", rest = ""] = /^(.*\| )?kube-proxy (\S+)(?: (.*))?$/.exec(command) ?? [];
  if (name === "services") return await printedByServices(rest.split(" "));
  if (name === "status") return await printedByStatus();
  const runner = RUNNERS[name];
  if (runner === undefined) throw new Error(`no command ${name}`);
  const words = rest.split(" ");
  // Standard input is read at once; files are read by a thread that must be started first.
  const usesFiles = name === "diff" || words.includes(DUMP) || words.includes("mistaken");
  using files = usesFiles ? new ExampleFiles() : undefined;
  const isInput = (word: string) => !usesFiles && word === "examples";
  const argv = words.map((word) => (isInput(word) ? "-" : (files?.paths[word] ?? word)));
  const input = piped === "" ? EXAMPLES : await brokenRules();
  const { out, err } = await runCommand(runner, argv, input);
  return out + err;
}

/** Asks a daemon in this process, on a node whose connection tracking is nearly full. */
async function printedByStatus(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-debugging-"));
  const path = join(folder, "kube-proxy.sock");
  const statistics = { entries: 246_000, max: 262_144, invalid: 35, insertFailed: 4, dropped: 120, earlyDropped: 7 };
  const conntrack = { ...NO_CONNTRACK, statistics: async () => statistics };
  const { end } = daemonAt({ after() {} }, path, [], [], undefined, undefined, { conntrack });
  const { out, err } = await runCommand(status, ["--socket", path]);
  await end();
  rmSync(folder, { recursive: true });
  return out + err;
}

/** Asks a daemon in this process, on a node on which four clients are connected to shop/web. */
async function printedByServices(words: readonly string[]): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-debugging-"));
  const path = join(folder, "kube-proxy.sock");
  const { end } = daemonAt({ after() {} }, path);
  const answering = ["10.180.0.11", "10.180.0.11", "10.180.0.12", "10.180.1.11"].map(ip);
  const client = { sourceIP: ip("10.180.0.9"), sourcePort: 4000, replyDestinationIP: ip("10.180.0.9") } as const;
  const service = { protocol: "TCP", destinationIP: ip("10.96.0.10"), destinationPort: 80, ...client } as const;
  let printed = "";
  const print = (text: string): void => {
    printed += text;
  };
  try {
    const argv = [...words, "--socket", path];
    await services(argv, { out: print, err: print }, undefined, async (_families, begin) => {
      const visit = begin("IPv4");
      for (const replySourceIP of answering) {
        visit({ ...service, replySourceIP, replySourcePort: 8080, replyDestinationPort: 4000 });
      }
      return true;
    });
    return printed;
  } finally {
    await end();
    rmSync(folder, { recursive: true });
  }
}

/** What the page needs besides the examples. */
function writeSamples({ changed = "", mistaken = "", [DUMP]: dump = "" }: Readonly<Record<string, string>>): void {
  const isNotReady = /("nodeName":"node-b","conditions":\{"ready":)true/g;
  writeFileSync(mistaken, mistakes(EXAMPLES));
  writeFileSync(changed, EXAMPLES.replaceAll(isNotReady, "$1false"));
  for (const part of ["objects", "config"]) mkdirSync(join(dump, part), { recursive: true });
  writeFileSync(join(dump, "objects/cluster.json"), DUMPED);
  writeFileSync(join(dump, "index.json"), JSON.stringify({ node: "node-a" }));
  writeFileSync(
    join(dump, "config/kube-proxy.json"),
    JSON.stringify({ mode: "nftables", clusterCIDR: "10.180.0.0/15" }),
  );
}

/** Files that stand for the folders of the page. */
class ExampleFiles implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "kpts-debugging-"));
  readonly paths: Readonly<Record<string, string>> = {
    examples: join(this.#folder, "examples.json"),
    changed: join(this.#folder, "changed.json"),
    mistaken: join(this.#folder, "mistaken.json"),
    [DUMP]: join(this.#folder, DUMP),
  };

  constructor() {
    writeFileSync(this.paths.examples ?? "", EXAMPLES);
    writeSamples(this.paths);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** The mistakes that people make most. */
function mistakes(examples: string): string {
  const list = JSON.parse(examples);
  const named = (kind: string, service: string) =>
    list.items.find(
      ({ kind: of, metadata }: { kind: string; metadata: { name: string } }) =>
        of === kind && metadata.name === service,
    );
  delete named("EndpointSlice", "search-ipv4").endpoints[0].hints;
  named("EndpointSlice", "cart-ipv4").ports[0].name = "web";
  named("Service", "admin").spec.selector = { app: "admn" };
  named("EndpointSlice", "admin-ipv4").endpoints = [];
  return JSON.stringify(list);
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

// At the top of a checkout, a reader of the page can paste its commands then.
if (import.meta.main) writeSamples({ changed: "changed", mistaken: "mistaken", [DUMP]: DUMP });
