/**
 * `npm run bench -- apiserver`: what it costs to follow an API server, with the whole program as it is installed and the
 * test API server in a process of its own. See docs/performance.md.
 */
import { fileURLToPath } from "node:url";
import type { ProxyMode } from "../src/dataplane/registry.ts";
import { type Bench, workerFigures } from "./driver.ts";
import type { Verdict } from "./nftables-targets.ts";
import { megabytes, ms, size, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./apiserver-worker.ts", import.meta.url));
const MODES = ["nftables", "iptables"] as const;
const FORMATS = ["protobuf", "json"] as const;

export const bench: Bench = {
  name: "apiserver",
  about: `Measures the whole program at an API server over TLS, in throw-away network namespaces: the initial list until the rules are
in the kernel, memory, and a stream of endpoint changes. Needs root.`,
  options: {
    quick: { help: "1000 services, 5 s of events" },
    modes: { value: "LIST", initial: "nftables", help: MODES.join(",") },
    formats: { value: "LIST", initial: "protobuf,json", help: "what the API server is asked to answer in" },
    services: { value: "N", initial: "10000", quick: "1000", help: "of the cluster" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    rate: { value: "N", initial: "1000", help: "endpoint changes a second" },
    seconds: { value: "N", initial: "25", quick: "5", help: "of them" },
    pages: { help: "lists in pages instead of streamed" },
  },
  async run(given) {
    const common = {
      services: given.whole("services"),
      endpointsEach: given.whole("endpoints"),
      hasWatchList: !given.isOn("pages"),
      eventsPerSecond: given.whole("rate"),
      eventSeconds: given.whole("seconds"),
      settleSeconds: 20,
    };
    const results: ApiServerFigures[] = [];
    for (const text of given.list("modes")) {
      for (const word of given.list("formats")) {
        const mode = given.oneOf("modes", MODES, text);
        const task: ApiServerTask = { ...common, mode, format: given.oneOf("formats", FORMATS, word) };
        process.stderr.write(
          `measuring ${text}, ${word}, ${task.services} services × ${task.endpointsEach} endpoints…\n`,
        );
        results.push(await workerFigures({ script: WORKER, task, asDaemon: false }));
      }
    }
    console.log(apiServerTable(results));
    return { verdicts: judgeApiServer(results), figures: { results } };
  },
};

/** A column per mode and format. */
export function apiServerTable(results: readonly ApiServerFigures[]): string {
  const row = (title: string, cell: (figures: ApiServerFigures) => string) => [title, ...results.map(cell)];
  const us = (value: number): string => `${value.toFixed(0)} µs`;
  const streamRows = (title: string, of: (figures: ApiServerFigures) => StreamFigures) => [
    row(`${title}: processor time per event`, (figures) => us(of(figures).cpuUsPerEvent)),
    row("  of that in the kernel", (figures) => us(of(figures).kernelCpuUsPerEvent)),
    row("  tools, beside it", (figures) => us(of(figures).childrenCpuUsPerEvent)),
    row("  allocated per event", (figures) => size(Math.round(of(figures).allocatedBytesPerEvent))),
    row("  standing still to collect garbage", (figures) => `${(of(figures).pauseShare * 100).toFixed(1)} %`),
  ];
  return table(
    ["", ...results.map((each) => `${each.mode}, ${each.format}, ${each.services} × ${each.endpointsEach}`)],
    [
      row("sent for the initial lists", ({ listBytes }) => size(listBytes)),
      row("start of the process to everything listed, ms", ({ listedMs }) => ms(listedMs)),
      row("start of the process to rules in the kernel, ms", ({ syncedMs }) => ms(syncedMs)),
      row("  processor time until then, tools included, ms", ({ syncedCpuMs }) => ms(syncedCpuMs)),
      row("resident MB: peak until then", ({ peakMb }) => megabytes(peakMb)),
      row("  settled", ({ settledMb }) => megabytes(settledMb)),
      row("  of that pages of files, which processes share", ({ fileMb }) => megabytes(fileMb)),
      row("events sent", ({ stream }) => `${stream.events} × ${size(Math.round(stream.bytesPerEvent))}`),
      ...streamRows("whole program", ({ stream }) => stream),
      row("  resident MB at their end, and settled", ({ stream, afterStreamMb }) =>
        [stream.rssMb, afterStreamMb].map(megabytes).join(" / "),
      ),
      ...streamRows("API source alone", ({ source }) => source),
    ],
  );
}

export interface ApiServerTask {
  readonly mode: ProxyMode;
  readonly format: (typeof FORMATS)[number];
  readonly services: number;
  readonly endpointsEach: number;
  readonly hasWatchList: boolean;
  readonly eventsPerSecond: number;
  readonly eventSeconds: number;
  /** Rest before the settled size is read. */
  readonly settleSeconds: number;
}

/** A stream of events, as one process took it. */
export interface StreamFigures {
  readonly events: number;
  readonly bytesPerEvent: number;
  /** Processor time of all threads per event, and what of it was spent in the kernel. */
  readonly cpuUsPerEvent: number;
  readonly kernelCpuUsPerEvent: number;
  /** Of tools that were run. */
  readonly childrenCpuUsPerEvent: number;
  readonly allocatedBytesPerEvent: number;
  /** Share of the time in which the program stood still to collect garbage. */
  readonly pauseShare: number;
  readonly rssMb: number;
}

export interface ApiServerFigures {
  readonly mode: ProxyMode;
  readonly format: ApiServerTask["format"];
  readonly services: number;
  readonly endpointsEach: number;
  readonly listBytes: number;
  /** From the start of the process until everything was delivered, and until the rules were in the kernel. */
  readonly listedMs: number;
  readonly syncedMs: number;
  /** Processor time until then. */
  readonly syncedCpuMs: number;
  /** Megabytes. */
  readonly peakMb: number;
  readonly syncedMb: number;
  readonly settledMb: number;
  readonly fileMb: number;
  /** The whole program. */
  readonly stream: StreamFigures;
  readonly afterStreamMb: number;
  /** Nothing but the source: requests, decoding, the minimal set of events. */
  readonly source: StreamFigures;
}

const SETTLED_MB = 200;
const EVENT_PATH_US = 100;

/** One verdict per mode and target. */
export function judgeApiServer(results: readonly ApiServerFigures[]): Verdict[] {
  return results.flatMap(({ mode, settledMb, afterStreamMb, source }) => [
    {
      passed: settledMb <= SETTLED_MB,
      text: `${mode}: ${settledMb.toFixed(0)} MB resident once settled, at most ${SETTLED_MB} wanted`,
    },
    {
      passed: afterStreamMb <= SETTLED_MB,
      text: `${mode}: ${afterStreamMb.toFixed(0)} MB after the events, at most ${SETTLED_MB} wanted`,
    },
    {
      passed: source.cpuUsPerEvent < EVENT_PATH_US,
      text: `${mode}: the API source adds ${source.cpuUsPerEvent.toFixed(0)} µs of processor time per event, under ${EVENT_PATH_US} wanted`,
    },
  ]);
}
