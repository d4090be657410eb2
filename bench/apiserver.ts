/**
 * `npm run bench -- apiserver`: what it costs to follow an API server, with the whole program as it is installed and the
 * test API server in a process of its own. See docs/performance.md.
 */
import { fileURLToPath } from "node:url";
import type { ApiServerFigures, ApiServerTask, StreamFigures } from "./apiserver-figures.ts";
import { judgeApiServer } from "./apiserver-targets.ts";
import { type Bench, workerFigures } from "./driver.ts";
import { megabytes, ms, size, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./apiserver-worker.ts", import.meta.url));
const MODES = ["nftables", "iptables"] as const;

export const bench: Bench = {
  name: "apiserver",
  about: `Measures the whole program at an API server over TLS, in throw-away network namespaces: the initial list until the rules are
in the kernel, memory, and a stream of endpoint changes. Needs root.`,
  options: {
    quick: { help: "1000 services, 5 s of events" },
    modes: { value: "LIST", initial: "nftables", help: MODES.join(",") },
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
      const task: ApiServerTask = { ...common, mode: given.oneOf("modes", MODES, text) };
      process.stderr.write(`measuring ${text} with ${task.services} services × ${task.endpointsEach} endpoints…\n`);
      results.push(await workerFigures({ script: WORKER, task, asDaemon: false }));
    }
    console.log(apiServerTable(results));
    return { verdicts: judgeApiServer(results), figures: { results } };
  },
};

/** A column per mode. */
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
    ["", ...results.map(({ mode, services, endpointsEach }) => `${mode}, ${services} × ${endpointsEach}`)],
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
