/**
 * Paths are compared in turns of a few milliseconds and in varying order: what counts are ratios within one round.
 * Here: connections to endpoints directly and through their services, in namespaces that are compared.
 */
import { fileURLToPath } from "node:url";
import { benchService, benchSlice } from "./cluster.ts";
import { type Estimate, estimate, estimateText, permutations } from "./estimate.ts";
import type { LoopFigures, LoopTask, Target } from "./socket-loop.ts";
import { median, table } from "./table.ts";
import { answerLines, type LineProcess, startLines } from "./workers.ts";

/** Elapsed time until done, and processor time of the thread that does it. */
export type Figure = "us" | "cpuUs";
type Taken = Pick<LoopFigures, Figure>;

const WAYS = ["direct", "service"] as const;
type Way = (typeof WAYS)[number];

const SOCKET_LOOP = fileURLToPath(new URL("./socket-loop.ts", import.meta.url));
export const SERVER_PORT = 8080;
/** Per turn. */
const CONNECTIONS = 100;
const SCATTER = 7919;
/** Warm-up rounds. */
const FIRST_ROUNDS = 10;

/** Times of each arm, round by round. */
export class Rounds {
  readonly #taken: Readonly<Record<string, Taken>>[] = [];

  /** Runs each arm once in every round. */
  async take(arms: Readonly<Record<string, () => Promise<Taken>>>, rounds: number): Promise<void> {
    const all = Object.entries(arms);
    const inOrder = permutations();
    for (let round = -FIRST_ROUNDS; round < rounds; round += 1) {
      const figures: Record<string, Taken> = {};
      for (const index of inOrder(all.length)) {
        const [name = "", ask] = all[index] ?? [];
        if (ask !== undefined) figures[name] = await ask();
      }
      if (round >= 0) this.#taken.push(figures);
    }
  }

  middle(arm: string, figure: Figure): number {
    return median(this.#taken.map((round) => round[arm]?.[figure] ?? 0));
  }

  /** The ratio of two arms within the same rounds. */
  ratio(one: string, other: string, figure: Figure): Estimate {
    return estimate(this.#taken.map((round) => (round[one]?.[figure] ?? 0) / (round[other]?.[figure] ?? 1)));
  }

  /** How much more one arm takes than another within the same rounds. */
  difference(one: string, other: string, figure: Figure): Estimate {
    return estimate(this.#taken.map((round) => (round[one]?.[figure] ?? 0) - (round[other]?.[figure] ?? 0)));
  }
}

/** Starts one end of connections (socket-loop.ts), in the given namespace, if any. */
export async function startLoop(words: readonly string[], namespace?: string): Promise<LineProcess> {
  const child = startLines([process.execPath, SOCKET_LOOP, ...words], namespace);
  await child.next();
  return child;
}

/** Destinations of a path: this many services, far apart. */
export function targetsOf(way: Way, services: number, endpointsEach: number, count = CONNECTIONS): readonly Target[] {
  return Array.from({ length: count }, (_, n): Target => {
    const index = (n * SCATTER) % services;
    if (way === "service") return [benchService(index).clusterIP, 80];
    return [benchSlice(index, endpointsEach).endpoints[n % endpointsEach]?.address ?? "", SERVER_PORT];
  });
}

/** @throws if any part failed. */
export async function askLoop(client: LineProcess, task: LoopTask): Promise<LoopFigures> {
  const figures = await client.ask<LoopFigures>(task);
  if (figures.failures > 0) throw new Error(`${figures.failures} of ${task.count} failed: ${task.load}`);
  return figures;
}

/** Runs in a worker whose cluster is in the kernel: answers each line, a path, with {@link LoopFigures}. */
export async function answerWays(services: number, endpointsEach: number): Promise<undefined> {
  await startLoop(["serve", String(SERVER_PORT)]);
  const client = await startLoop(["client"]);
  await answerLines((way: Way) =>
    askLoop(client, { load: "connect", count: CONNECTIONS, targets: targetsOf(way, services, endpointsEach) }),
  );
}

/** Connects in two namespaces that {@link answerWays}, in turns. @param start also waits until the worker is ready. */
export class ComparedConnections {
  readonly #names: readonly [one: string, other: string];
  readonly #rounds = new Rounds();

  constructor(...names: readonly [one: string, other: string]) {
    this.#names = names;
  }

  async take(workers: readonly LineProcess[], rounds: number): Promise<void> {
    for (const worker of workers) await worker.next();
    const arms = workers.flatMap((worker, at) =>
      WAYS.map((way) => [`${this.#names[at]} ${way}`, () => worker.ask<Taken>(way)] as const),
    );
    await this.#rounds.take(Object.fromEntries(arms), rounds);
  }

  /** Relative to a direct connection in the same namespace, until connected. */
  ofDirect(name: string, figure: Figure = "us"): Estimate {
    return this.#rounds.ratio(`${name} service`, `${name} direct`, figure);
  }

  /** The same path in both namespaces. */
  between(way: Way, figure: Figure = "us"): Estimate {
    const [one, other] = this.#names;
    return this.#rounds.ratio(`${one} ${way}`, `${other} ${way}`, figure);
  }

  table(services: number): string {
    const figures = { "until connected": "us", "processor time": "cpuUs" } as const;
    const rows = Object.entries(figures).flatMap(([what, figure]) => {
      const cells = (way: Way) => [
        ...this.#names.map((name) => this.#rounds.middle(`${name} ${way}`, figure).toFixed(1)),
        estimateText(this.between(way, figure)),
      ];
      return [
        [`${what}, direct, µs`, ...cells("direct")],
        ["  through a cluster IP, µs", ...cells("service")],
        ["  of a direct one", ...this.#names.map((name) => estimateText(this.ofDirect(name, figure))), ""],
      ];
    });
    return table([`a connection, ${services} services`, ...this.#names, this.#names.join(" : ")], rows);
  }
}
