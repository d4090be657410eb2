/**
 * `npm run bench -- against BINARY`: any kube-proxy beside this program, as it is built, on the same states of the tests' API server, in
 * turns. What is waited for is the same for both: the metric of the first sync, and connections through new Services.
 */
import { spawnSync } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { basename, resolve } from "node:path";
import { LAYOUT_NAMES } from "../src/dataplane/nftables/layout-name.ts";
import { PROGRAM } from "../test/apiserver/api-daemon.ts";
import type { Bench } from "./driver.ts";
import {
  answerConnections,
  measureProgram,
  type ProgramFigures,
  type ProgramTask,
  runProgram,
} from "./first-connection.ts";
import { atMost, median, megabytes, ms, table, type Verdict } from "./table.ts";

const MODES = ["nftables", "iptables", "ipvs"] as const;
type Mode = (typeof MODES)[number];
/** What this program promises: from the API server's answer to the first connection (issue 4), p50; and its own memory in a small cluster. */
const CONNECTION_MS: Readonly<Partial<Record<Mode, number>>> = { iptables: 200, nftables: 50 };
const PRIVATE_MB = 20;
const SMALL = 15;
const VERSION_LIMIT_MS = 10_000;

interface AgainstResult {
  readonly title: string;
  readonly name: string;
  /** By round: this program, and the other. */
  readonly rounds: readonly (readonly [own: ProgramFigures, other: ProgramFigures])[];
}

export const bench: Bench = {
  name: "against",
  about: `Runs BINARY, any kube-proxy, and this program as it is built (npm run build) at the tests' API server, in turns, in throw-away
network namespaces: start to first sync, a Service that is added, processor time, memory. Needs root.`,
  operand: "BINARY",
  options: {
    quick: { help: "one small state" },
    modes: { value: "LIST", initial: "nftables", help: MODES.join(",") },
    layout: {
      value: "NAME",
      initial: "Compatible",
      help: `of this program in mode nftables: ${LAYOUT_NAMES.join(", ")}`,
    },
    sizes: { value: "LIST", initial: "15x4,3000x4,5006x50", quick: "15x4", help: "SERVICESxENDPOINTS,…" },
    changes: { value: "N", initial: "10", quick: "3", help: "Services added, one after the other" },
    rounds: { value: "N", initial: "3", quick: "1", help: "of each state" },
    settle: { value: "SECONDS", initial: "20", quick: "1", help: "rest before the memory is read" },
    limit: { value: "SECONDS", initial: "600", help: "for a first sync, and for a connection" },
  },
  async run(given) {
    const binary = executable(given.parts[0] ?? "");
    const [own = ""] = PROGRAM;
    const layout = given.oneOf("layout", LAYOUT_NAMES);
    const modes = given.someOf("modes", MODES);
    const name = nameOf(binary);
    const [trials, limitMs] = [given.whole("changes"), 1000 * given.whole("limit")];
    const settleSeconds = given.whole("settle", 0);
    // The first start brings files into memory.
    for (const program of [binary, own]) {
      const once = { mode: modes[0] ?? "nftables", services: 1, endpointsEach: 1, limitMs, program };
      await measureProgram(once, 1, 0);
    }
    const results: AgainstResult[] = [];
    const verdicts: Verdict[] = [];
    for (const mode of modes) {
      for (const size of given.sizes("sizes")) {
        const title = `${mode}${mode === "nftables" ? ` ${layout}` : ""}, ${size.services} × ${size.endpointsEach}`;
        const measure = (more: Pick<ProgramTask, "program" | "layout">) =>
          measureProgram({ ...size, mode, limitMs, ...more }, trials, settleSeconds);
        const other = () => measure({ program: binary });
        const rounds: (readonly [ProgramFigures, ProgramFigures])[] = [];
        for (let round = 1; round <= given.whole("rounds"); round += 1) {
          process.stderr.write(`${title}, round ${round}…\n`);
          const first = round % 2 === 0 ? undefined : await other();
          const figures = await measure({ program: own, ...(mode === "nftables" && { layout }) });
          rounds.push([figures, first ?? (await other())]);
        }
        const result = { title, name, rounds };
        results.push(result);
        console.log(`${againstTable(result)}\n`);
        const middle = (of: (figures: ProgramFigures) => number) => median(rounds.map(([figures]) => of(figures)));
        const connectionMs = CONNECTION_MS[mode];
        if (connectionMs !== undefined) {
          const p50 = middle(({ connection }) => connection.p50);
          verdicts.push(atMost(`${title}, here: first connection, ms`, p50, connectionMs));
        }
        if (size.services <= SMALL) {
          const privateMb = middle((figures) => figures.privateMb);
          verdicts.push(atMost(`${title}, here: resident of its own alone, MB`, privateMb, PRIVATE_MB));
        }
      }
    }
    return { verdicts, figures: { results } };
  },
  worker: (task: ProgramTask | { readonly isClient: true }) =>
    "isClient" in task ? answerConnections() : runProgram(task),
};

/** @throws RangeError for what cannot be started. */
function executable(word: string): string {
  const path = resolve(word);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) throw new RangeError(`${path} does not exist`);
  if (!stats.isFile()) throw new RangeError(`${path} is no file`);
  try {
    accessSync(path, constants.X_OK);
  } catch {
    throw new RangeError(`${path} is not executable`);
  }
  return path;
}

/** What it says of its version; its file name where it says nothing. */
function nameOf(path: string): string {
  const { stdout } = spawnSync(path, ["--version"], { encoding: "utf8", timeout: VERSION_LIMIT_MS });
  return (stdout ?? "").split("\n")[0] || basename(path);
}

/** Medians of the rounds; the ratio is the median of those of single rounds. */
export function againstTable({ title, name, rounds }: AgainstResult): string {
  const row = (what: string, of: (figures: ProgramFigures) => number, text = ms): string[] => {
    const [own, other] = [rounds.map(([figures]) => of(figures)), rounds.map(([, figures]) => of(figures))];
    const ratios = rounds.map(([here, there]) => of(there) / of(here));
    return [what, text(median(own)), text(median(other)), median(ratios).toFixed(2)];
  };
  return table(
    [title, "here", name, "ratio"],
    [
      row("start to first sync, ms", ({ firstSyncMs }) => firstSyncMs),
      row("  processor time until then, tools included, ms", ({ startCpuMs }) => startCpuMs),
      row("a Service more: its first connection, ms, p50", ({ connection }) => connection.p50),
      row("  p99", ({ connection }) => connection.p99),
      row("  work of its syncs, ms", ({ workMs }) => workMs),
      row("  processor time, ms", ({ changeCpuMs }) => changeCpuMs),
      row("resident at rest, MB", ({ rssMb }) => rssMb, megabytes),
      row("  of that its own alone", ({ privateMb }) => privateMb, megabytes),
      row("  at its peak", ({ peakMb }) => peakMb, megabytes),
    ],
  );
}
