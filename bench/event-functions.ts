/**
 * `npm run bench -- functions`: how many of our functions, in how many files, one EndpointSlice event runs through
 * until the kernel has it, by mode. V8's precise coverage counts calls around one change of one endpoint.
 */
import { Session } from "node:inspector/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { type BenchMode, openMode } from "./backends.ts";
import { ChangeCostSubject } from "./change-cost-subject.ts";
import type { Bench } from "./driver.ts";
import { type Figures, Notes } from "./table.ts";

const SOURCES = new URL("../src/", import.meta.url).href;
const SERVICES = 200;
const ENDPOINTS = 4;
const WARM_UP = 20;
/** The one with the fewest functions counts: on a busy machine some give way to others. */
const EVENTS = 3;
/** The kernel announces our own commit a little later. */
const ANNOUNCED_MS = 200;
const MODES = ["Flat", "Compatible", "iptables-nft", "ebpf"] as const satisfies readonly BenchMode[];

export const bench: Bench = {
  name: "functions",
  about: "Our functions and files that one EndpointSlice event runs through until the kernel has it. Needs root.",
  options: {
    modes: { value: "LIST", initial: MODES.join(","), help: "of the proxy" },
    list: { help: "name all functions" },
  },
  tasks: (given) =>
    Object.fromEntries(given.someOf("modes", MODES).map((mode) => [mode, [{ mode, isListing: given.isOn("list") }]])),
  worker: measure,
};

interface FunctionsTask {
  readonly mode: (typeof MODES)[number];
  /** Whether to list them all: `file function calls`. */
  readonly isListing: boolean;
}

interface Called {
  readonly file: string;
  readonly name: string;
  readonly count: number;
}

async function measure({ mode, isListing }: FunctionsTask): Promise<Figures> {
  const newBackend = await openMode(mode);
  const subject = new ChangeCostSubject(ENDPOINTS, newBackend());
  const replace = async (line: Buffer): Promise<void> => {
    const { synced } = subject;
    subject.pushSlice(line);
    await synced;
    await sleep(ANNOUNCED_MS);
  };
  await subject.load(SERVICES);
  for (let index = 0; index < WARM_UP; index += 1) await replace(subject.replacedEndpoint(index, 1));
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  const events: Called[][] = [];
  for (let index = WARM_UP; index < WARM_UP + EVENTS; index += 1) {
    // Addresses are made by functions that are counted.
    const line = subject.replacedEndpoint(index, 1);
    await session.post("Profiler.takePreciseCoverage");
    await replace(line);
    const { result } = await session.post("Profiler.takePreciseCoverage");
    events.push(
      result
        .filter(({ url }) => url.startsWith(SOURCES) && !url.includes("/testing/"))
        .flatMap(({ url, functions }) =>
          functions.map(({ functionName: name, ranges }) => {
            return { file: url.slice(SOURCES.length), name, count: ranges[0]?.count ?? 0 };
          }),
        )
        .filter(({ count }) => count > 0),
    );
  }
  const [called = []] = events.sort((one, other) => one.length - other.length);
  if (isListing) {
    const lines = called.map(({ file, name, count }) => `${file} ${name} ${count}\n`).sort();
    process.stderr.write(`${mode}\n${lines.join("")}`);
  }
  const notes = new Notes();
  notes.add("functions", called.length);
  notes.add(
    "calls",
    called.reduce((sum, { count }) => sum + count, 0),
  );
  notes.add("files", new Set(called.map(({ file }) => file)).size);
  return notes.figures;
}
