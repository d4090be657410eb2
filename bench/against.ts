/**
 * `npm run bench -- against BINARY`: any kube-proxy next to this program, as built, on the same states of the tests' API
 * server, in turns. The end of a step is the same for both: the metric of the first sync, and connections through new
 * Services.
 */
import { spawnSync } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { basename, resolve } from "node:path";
import { LAYOUT_NAMES } from "../src/modes/nftables/layout-name.ts";
import { PROGRAM } from "../test/apiserver/api-daemon.ts";
import type { Bench } from "./driver.ts";
import { answerConnections, measureProgram, type ProgramTask, runProgram } from "./first-connection.ts";
import { type Figures, figuresTable, judgeFigures, middleOf, ratioOf, type Verdict } from "./table.ts";

const MODES = ["nftables", "iptables", "ipvs"] as const;
const VERSION_LIMIT_MS = 10_000;

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
    const results: Record<string, Readonly<Record<string, Figures>>> = {};
    const verdicts: Verdict[] = [];
    for (const mode of modes) {
      for (const size of given.sizes("sizes")) {
        const title = `${mode}${mode === "nftables" ? ` ${layout}` : ""}, ${size.services} × ${size.endpointsEach}`;
        const measure = (more: Pick<ProgramTask, "program" | "layout">) =>
          measureProgram({ ...size, mode, limitMs, ...more }, trials, settleSeconds);
        const rounds = { here: [] as Figures[], other: [] as Figures[] };
        const measureOther = async (): Promise<void> => void rounds.other.push(await measure({ program: binary }));
        for (let round = 1; round <= given.whole("rounds"); round += 1) {
          process.stderr.write(`${title}, round ${round}…\n`);
          const isOtherFirst = round % 2 === 1;
          if (isOtherFirst) await measureOther();
          rounds.here.push(await measure({ program: own, ...(mode === "nftables" && { layout }) }));
          if (!isOtherFirst) await measureOther();
        }
        const columns = againstColumns(name, rounds.here, rounds.other);
        results[title] = columns;
        console.log(`${figuresTable(title, columns)}\n`);
        verdicts.push(...judgeFigures({ [`${title}, here`]: columns.here }));
      }
    }
    return { verdicts, figures: { results } };
  },
  worker: (task: ProgramTask | { readonly isClient: true }) =>
    "isClient" in task ? answerConnections() : runProgram(task),
};

/** @throws RangeError if it is not an executable file. */
function executable(word: string): string {
  const path = resolve(word);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) throw new RangeError(`${path} does not exist`);
  if (!stats.isFile()) throw new RangeError(`${path} is not a file`);
  try {
    accessSync(path, constants.X_OK);
  } catch {
    throw new RangeError(`${path} is not executable`);
  }
  return path;
}

/** What it reports as its version; its file name if it reports nothing. */
function nameOf(path: string): string {
  const { stdout } = spawnSync(path, ["--version"], { encoding: "utf8", timeout: VERSION_LIMIT_MS });
  return (stdout ?? "").split("\n")[0] || basename(path);
}

/** Medians of the rounds; the ratio is the median of single rounds' ratios, whose sides share what else the machine was doing. */
export function againstColumns(name: string, here: readonly Figures[], other: readonly Figures[]) {
  const ratios = here.map((own, round) => ratioOf(other[round] ?? {}, own));
  return { here: middleOf(here), [name]: middleOf(other), ratio: middleOf(ratios) };
}
