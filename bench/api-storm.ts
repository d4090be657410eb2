/**
 * `npm run bench -- api-storm`: what the nodes of a large cluster request when their API server comes back, with the
 * program's own source in simulated time, next to client-go's reflectors (modelled). See docs/performance.md.
 */
import { createApiSource } from "../src/agent/cluster/apiserver/api-source.ts";
import { putOffMs } from "../src/agent/cluster/apiserver/watch/reflector-times.ts";
import { WATCHED_PLURALS } from "../src/agent/cluster/apiserver/watch/resources.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { SimulatedClock } from "./api-storm-clock.ts";
import { AWAY_FORMS, type StormSecond, StormServer } from "./api-storm-server.ts";
import { followLikeUpstream } from "./api-storm-upstream.ts";
import type { Bench } from "./driver.ts";
import { size, table } from "./table.ts";

export const CLIENTS = ["kube-proxy-ts", "client-go"] as const;

/** How a server is away. */
export type Form = keyof typeof AWAY_FORMS;
export const FORMS = Object.keys(AWAY_FORMS) as readonly Form[]; // its own keys

export const bench: Bench = {
  name: "api-storm",
  about: `What many nodes ask of an API server that was away and comes back without its history: the program's own source and a model of
client-go's reflectors, in simulated time.`,
  needsRoot: false,
  options: {
    quick: { help: "500 nodes" },
    nodes: { value: "N", initial: "5000", quick: "500", help: "of the cluster" },
    away: { value: "LIST", initial: "10,60", help: "seconds that the server is away" },
    forms: { value: "LIST", initial: "refused", help: `how it is away: ${FORMS.join(",")}` },
    lists: { value: "N", initial: "1000000", help: "lists a second that the server answers; more get 429" },
    objects: { value: "N", initial: "10000", help: "Services, and as many slices" },
    "list-bytes": { value: "N", initial: "21400000", help: "the lists of them for one node" },
    clients: { value: "LIST", initial: CLIENTS.join(","), help: CLIENTS.join(",") },
  },
  async run(given) {
    const results: StormFigures[] = [];
    const common = {
      nodes: given.whole("nodes"),
      objects: given.whole("objects"),
      listsPerSecond: given.whole("lists"),
      listBytes: given.whole("list-bytes"),
    };
    for (const awaySeconds of given.wholes("away")) {
      for (const form of given.someOf("forms", FORMS)) {
        for (const client of given.someOf("clients", CLIENTS)) {
          process.stderr.write(`simulating ${common.nodes} nodes, ${client}, ${form} for ${awaySeconds} s…\n`);
          results.push(await simulateStorm({ ...common, client, form, awaySeconds }));
        }
      }
    }
    console.log(stormTable(results));
    return { figures: { results } };
  },
};

export interface StormTask {
  readonly nodes: number;
  readonly client: (typeof CLIENTS)[number];
  readonly form: Form;
  readonly awaySeconds: number;
  readonly listsPerSecond: number;
  /** In each of the two large lists. */
  readonly objects: number;
  /** All four lists of a node together. */
  readonly listBytes: number;
}

interface StormFigures extends StormTask {
  /** Attempts while the server is away: in total, and in the busiest second. */
  readonly away: { readonly knocks: number; readonly mostKnocks: number };
  /** After its return, by second. */
  readonly back: readonly StormSecond[];
  /** From its return until a node has asked for Services and slices, and so hears of changes: milliseconds, sorted. */
  readonly heardMs: readonly number[];
  /** From its return until a node has all its lists: milliseconds, sorted. */
  readonly recoveredMs: readonly number[];
}

/** Beyond the longest wait of any client. */
const WATCHED_SECONDS = 150;
const START_SECONDS = 60;
/** Slices are most of the bytes; Node and ServiceCIDR hardly count. */
const SLICES_SHARE = 0.7;

export async function simulateStorm(task: StormTask): Promise<StormFigures> {
  const { nodes, client, form, awaySeconds, listsPerSecond, objects, listBytes } = task;
  const clock = new SimulatedClock();
  const bytes = { services: listBytes * (1 - SLICES_SHARE), endpointslices: listBytes * SLICES_SHARE };
  const server = new StormServer(clock, AWAY_FORMS[form], bytes, listsPerSecond);
  const stop = new AbortController();
  server.comeBack();
  const running = Array.from({ length: nodes }, async (_, index) => {
    const nodeName = `node-${index}`;
    const common = { transport: server.transportOf(nodeName), clock };
    // Not all in one step.
    await clock.sleep(Math.random() * 1_000 * (START_SECONDS / 2), stop.signal);
    if (client === "client-go") {
      await Promise.all(WATCHED_PLURALS.map((plural) => followLikeUpstream(plural, common, stop.signal)));
      return;
    }
    // The lists here are empty: that many objects of that many nodes would not fit into memory.
    const times = { putOffMs: () => putOffMs(objects) };
    const source = createApiSource({ ...common, nodeName, log: silentLogger, resyncPeriodMs: 0, times });
    await source.run({ onEvent() {}, onSynced() {} }, stop.signal);
  });
  await clock.advance(START_SECONDS * 1_000);
  server.take();
  server.goAway();
  await clock.advance(awaySeconds * 1_000);
  const knocks = server.take().map((second) => second.knocks);
  server.listedMs.clear();
  server.askedMs.clear();
  server.comeBack();
  const backMs = clock.monotonicMs();
  await clock.advance(WATCHED_SECONDS * 1_000);
  const back = server.take();
  const sinceBack = (times: ReadonlyMap<string, number>, plurals: readonly string[]) =>
    Array.from({ length: nodes }, (_, index) => {
      const all = plurals.map((plural) => times.get(`node-${index}/${plural}`) ?? Number.POSITIVE_INFINITY);
      return Math.max(...all) - backMs;
    }).sort((a, b) => a - b);
  const heardMs = sinceBack(server.askedMs, ["services", "endpointslices"]);
  const recoveredMs = sinceBack(server.listedMs, WATCHED_PLURALS);
  stop.abort();
  server.goAway();
  await clock.advance(2_000);
  await Promise.all(running);
  return {
    ...task,
    away: { knocks: knocks.reduce((sum, each) => sum + each, 0), mostKnocks: Math.max(0, ...knocks) },
    back,
    heardMs,
    recoveredMs,
  };
}

/** One column per simulation. */
export function stormTable(results: readonly StormFigures[]): string {
  const row = (title: string, cell: (figures: StormFigures) => string) => [title, ...results.map(cell)];
  const most = (figures: StormFigures, of: (second: StormSecond) => number) => Math.max(0, ...figures.back.map(of));
  const sum = (figures: StormFigures, of: (second: StormSecond) => number) =>
    figures.back.reduce((total, second) => total + of(second), 0);
  const at = (figures: StormFigures, share: number) => {
    const ms = figures.recoveredMs[Math.min(figures.nodes - 1, Math.floor(figures.nodes * share))] ?? 0;
    return `${(ms / 1000).toFixed(1)} s`;
  };
  return table(
    ["", ...results.map(({ client, nodes, form, awaySeconds }) => `${client}, ${nodes}, ${form} for ${awaySeconds} s`)],
    [
      row("attempts a second while it is away", ({ away, awaySeconds }) => (away.knocks / awaySeconds).toFixed(0)),
      row("  in the busiest second", ({ away }) => String(away.mostKnocks)),
      row("  processors that they take", ({ away, awaySeconds, form }) =>
        ((away.knocks / awaySeconds / 1000) * AWAY_FORMS[form].costMs).toFixed(2),
      ),
      row("requests after its return", (figures) => String(sum(figures, ({ requests }) => requests))),
      row("  in the busiest second", (figures) => String(most(figures, ({ requests }) => requests))),
      row("  of them lists", (figures) => String(most(figures, ({ lists }) => lists))),
      row("  refused, in all", (figures) => String(sum(figures, ({ refused }) => refused))),
      row("bytes of lists", (figures) => size(sum(figures, ({ bytes }) => bytes))),
      row("  asked for in the busiest second", (figures) => size(most(figures, ({ bytes }) => bytes))),
      row("a node hears of changes: the last", ({ heardMs }) => `${((heardMs.at(-1) ?? 0) / 1000).toFixed(2)} s`),
      row("a node has everything again: p50", (figures) => at(figures, 0.5)),
      row("  p99", (figures) => at(figures, 0.99)),
      row("  the last", (figures) => at(figures, 1)),
    ],
  );
}
