/**
 * `npm run bench -- functions`: through how many functions of ours, in how many files, one EndpointSlice event runs until the
 * kernel has it, by mode. V8's precise coverage counts calls around one change of one endpoint.
 */
import { Session } from "node:inspector/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { type BenchMode, openMode } from "./backends.ts";
import { ChangeCostSubject } from "./change-cost-subject.ts";
import type { Bench } from "./driver.ts";
import { table } from "./table.ts";
import { inWorker } from "./workers.ts";

const SOURCES = new URL("../src/", import.meta.url).href;
const SERVICES = 200;
const ENDPOINTS = 4;
const WARM_UP = 20;
/** The kernel announces our own commit a little later. */
const ANNOUNCED_MS = 200;
const MODES = ["Flat", "Compatible", "iptables-nft", "ebpf"] as const satisfies readonly BenchMode[];

interface EventFigures {
  readonly mode: string;
  /** `file function calls`, by file. */
  readonly list: readonly string[];
  readonly calls: number;
  readonly files: number;
}

export const bench: Bench = {
  name: "functions",
  about: "Our functions and files that one EndpointSlice event runs through until the kernel has it. Needs root.",
  options: {
    modes: { value: "LIST", initial: MODES.join(","), help: "of the proxy" },
    list: { help: "name all functions" },
  },
  async run(given) {
    const figures: EventFigures[] = [];
    for (const mode of given.someOf("modes", MODES)) figures.push(await inWorker("functions", { mode }));
    if (given.isOn("list")) for (const { mode, list } of figures) console.log(`${mode}\n${list.join("\n")}`);
    const rows = figures.map(({ mode, list, calls, files }) => [mode, ...[list.length, calls, files].map(String)]);
    console.log(table(["one EndpointSlice event", "functions", "calls", "files"], rows));
    return { figures: { figures } };
  },
  worker: measure,
};

async function measure({ mode }: { readonly mode: (typeof MODES)[number] }): Promise<EventFigures> {
  const newBackend = await openMode(mode);
  const subject = new ChangeCostSubject(ENDPOINTS, newBackend());
  const replace = async (index: number): Promise<void> => {
    const { synced } = subject;
    subject.pushSlice(subject.replacedEndpoint(index, 1));
    await synced;
    await sleep(ANNOUNCED_MS);
  };
  await subject.load(SERVICES);
  for (let index = 0; index < WARM_UP; index += 1) await replace(index);
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await session.post("Profiler.takePreciseCoverage");
  await replace(WARM_UP);
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const called = result
    .filter(({ url }) => url.startsWith(SOURCES))
    .flatMap(({ url, functions }) =>
      functions.map(({ functionName: name, ranges }) => {
        return { file: url.slice(SOURCES.length), name, count: ranges[0]?.count ?? 0 };
      }),
    )
    .filter(({ count }) => count > 0);
  return {
    mode,
    list: called.map(({ file, name, count }) => `${file} ${name} ${count}`).sort(),
    calls: called.reduce((sum, { count }) => sum + count, 0),
    files: new Set(called.map(({ file }) => file)).size,
  };
}
