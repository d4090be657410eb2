/**
 * `npm run bench -- start`: how long it takes from the start of the process to rules in the kernel, and what is resident
 * then, next to another checkout and to what no start can do without: the same lists read and parsed by the shortest program, and the same
 * batches sent. In turns. See docs/performance.md.
 */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type LayoutName, layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import { isProxyMode, type ProxyMode } from "../src/dataplane/registry.ts";
import { type Bench, type Given, workerFigures } from "./driver.ts";
import { median, megabytes, ms, size, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./start-worker.ts", import.meta.url));
const OWN = fileURLToPath(new URL("..", import.meta.url));
const SIZES = ["15x4", "3000x4", "10000x5"] as const;

export const bench: Bench = {
  name: "start",
  about:
    "Starts the built program at an API server over TLS, again and again, in a throw-away network namespace. Needs root.",
  options: {
    sizes: { value: "LIST", initial: SIZES.join(","), help: "SERVICESxENDPOINTS,…" },
    mode: { value: "MODE", initial: "nftables", help: "of the proxy" },
    layout: {
      value: "NAME",
      help: "of the nftables mode: Compatible or Flat (default Compatible); the other checkout has its default",
    },
    rounds: { value: "N", initial: "5", help: "of each size" },
    against: { value: "DIR", help: "another checkout with a built dist/, started in turns with this one" },
    settle: { value: "SECONDS", initial: "20", help: "rest before the memory is read" },
    pages: { help: "lists in pages instead of streamed" },
  },
  async run(given) {
    const results: StartResult[] = [];
    for (const task of tasksOf(given)) {
      process.stderr.write(`starting with ${task.services} services × ${task.endpointsEach} endpoints…\n`);
      const result = await workerFigures({ script: WORKER, task, asDaemon: false });
      results.push(result);
      console.log(`${startTable(result)}\n`);
    }
    return { figures: { results } };
  },
};

function tasksOf(given: Given): readonly StartTask[] {
  const mode = given.text("mode");
  if (!isProxyMode(mode)) throw new RangeError(`--mode: ${JSON.stringify(mode)} is no mode`);
  const named = given.optional("layout");
  const layout = named === undefined ? undefined : layoutNameOf(named);
  if (named !== undefined && (layout === undefined || mode !== "nftables")) {
    throw new RangeError(`--layout: ${JSON.stringify(named)} is no layout of mode ${mode}`);
  }
  const other = given.optional("against");
  return given.sizes("sizes").map((size) => ({
    mode,
    ...(layout && { layout }),
    ...size,
    hasWatchList: !given.isOn("pages"),
    rounds: given.whole("rounds"),
    checkouts: [OWN, ...(other === undefined ? [] : [resolve(other)])],
    settleSeconds: given.whole("settle", 0),
  }));
}

/** The median of the ratios of single rounds, which share what else the machine was doing. */
function ratioOf(values: readonly number[], others: readonly number[]): string {
  const ratios = values.flatMap((value, at) => {
    const other = others[at];
    return other === undefined ? [] : [value / other];
  });
  return median(ratios).toFixed(2);
}

/** Medians. */
export function startTable({ task, listBytes, starts, floor }: StartResult): string {
  const [own = [], other] = starts;
  const row = (title: string, of: (figures: StartFigures) => number, text: (value: number) => string): string[] => {
    const mid = (all: readonly StartFigures[]) => text(median(all.map(of)));
    if (other === undefined) return [title, mid(own)];
    return [title, mid(own), mid(other), ratioOf(own.map(of), other.map(of))];
  };
  const floorRow = (title: string, values: readonly number[], ratio = "") => [title, ms(median(values)), "", ratio];
  return table(
    [
      `${task.mode}${task.layout === undefined ? "" : ` ${task.layout}`}, ${task.services} × ${task.endpointsEach}`,
      "here",
      ...(other === undefined ? [] : ["other", "ratio"]),
    ],
    [
      row("start to everything listed, ms", ({ listedMs }) => listedMs, ms),
      row("start to rules in the kernel, ms", ({ syncedMs }) => syncedMs, ms),
      row("  processor time until then, ms", ({ cpuMs }) => cpuMs, ms),
      floorRow(
        `shortest program, ${size(listBytes)} read and parsed, ms`,
        floor.map(({ parsedMs }) => parsedMs),
      ),
      floorRow(
        "  its processor time, ms",
        floor.map(({ cpuMs }) => cpuMs),
      ),
      ...sentRows(),
      row("resident MB, peak until then", ({ peakMb }) => peakMb, megabytes),
      row("  at rest", ({ settledMb }) => settledMb, megabytes),
      row("  of that its own alone", ({ settledPrivateMb }) => settledPrivateMb, megabytes),
    ],
  );

  function sentRows(): string[][] {
    const sent = floor.flatMap(({ sentMs }) => sentMs ?? []);
    if (sent.length === 0) return [];
    const floorMs = floor.map(({ parsedMs, sentMs = 0 }) => parsedMs + sentMs);
    // What a program that does one after the other cannot be under.
    const ratio =
      other &&
      ratioOf(
        floorMs,
        other.map(({ syncedMs }) => syncedMs),
      );
    return [
      floorRow("the batches for it only sent, ms", sent),
      floorRow("floor: lists parsed, then batches sent, ms", floorMs, ratio),
    ];
  }
}

export interface StartTask {
  readonly mode: ProxyMode;
  /** Of the first checkout; the others may not know it. @default what the mode does without */
  readonly layout?: LayoutName;
  readonly services: number;
  readonly endpointsEach: number;
  /** Whether lists can be streamed; otherwise they are read in pages. */
  readonly hasWatchList: boolean;
  readonly rounds: number;
  /** Checkouts with a built `dist/`, started in turns. The first is this one. */
  readonly checkouts: readonly string[];
  /** Rest before the settled size is read. */
  readonly settleSeconds: number;
}

/** One start of one checkout. Times are from the start of the process, milliseconds. */
export interface StartFigures {
  /** Until Services and EndpointSlices are delivered. */
  readonly listedMs: number;
  /** Until the rules of all families are in the kernel. */
  readonly syncedMs: number;
  /** Processor time until then, the tools included. */
  readonly cpuMs: number;
  /** Megabytes: highest until the rules were there, and at rest. */
  readonly peakMb: number;
  readonly settledMb: number;
  /** At rest: without what pages of files share with other processes. */
  readonly settledPrivateMb: number;
}

/** What no start can do without, milliseconds. */
export interface FloorFigures {
  /** One run of the shortest program: start of the process to everything parsed. */
  readonly parsedMs: number;
  /** Of the kernel alone, for the batches of the first load. Of mode nftables only. */
  readonly sentMs?: number;
  /** Processor time until everything is parsed. */
  readonly cpuMs: number;
}

export interface StartResult {
  readonly task: StartTask;
  readonly listBytes: number;
  /** By checkout, in the order of the task. */
  readonly starts: readonly (readonly StartFigures[])[];
  readonly floor: readonly FloorFigures[];
}
