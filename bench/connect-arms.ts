/**
 * Connections to endpoints directly and to their services, in turns of a few milliseconds: in one namespace or in several that are
 * compared. What is compared is measured in one round, in an order that changes.
 */
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type LineProcess, startLines } from "./bench-processes.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { type Estimate, estimate, permutations } from "./estimate.ts";
import type { ConnectFigures, ConnectTask } from "./socket-loop.ts";
import { median } from "./table.ts";

export const WAYS = ["direct", "service"] as const;
export type Way = (typeof WAYS)[number];

/** What each way took in one round. */
export type WayFigures = Readonly<Record<Way, ConnectFigures>>;
export type Round<Name extends string> = Readonly<Record<Name, WayFigures>>;

/** Until connected, and processor time of the thread that connects. */
export type Figure = "p50Us" | "cpuUs";

const SOCKET_LOOP = fileURLToPath(new URL("./socket-loop.ts", import.meta.url));
const SERVER_PORT = 8080;
/** Of one turn. */
const CONNECTIONS = 100;
const SCATTER = 7919;
/** Rounds that warm up. */
const FIRST_ROUNDS = 10;

/** Starts one side of a connection: `serve PORT`, or `connect`. */
export async function startLoop(...words: string[]): Promise<LineProcess> {
  const child = startLines(process.execPath, [SOCKET_LOOP, ...words]);
  await child.next();
  return child;
}

/** In a worker whose cluster is in the kernel: answers each line of standard input, a way, with {@link ConnectFigures}. */
export async function answerWays(services: number, endpointsEach: number): Promise<void> {
  await startLoop("serve", String(SERVER_PORT));
  const client = await startLoop("connect");
  const numbers = Array.from({ length: CONNECTIONS }, (_, n) => (n * SCATTER) % services);
  const targets: Readonly<Record<Way, ConnectTask["targets"]>> = {
    direct: numbers.map((n) => {
      const { endpoints } = benchSlice(n, endpointsEach);
      return [endpoints[n % endpointsEach]?.address ?? "", SERVER_PORT];
    }),
    service: numbers.map((n) => [benchService(n).clusterIP, 80]),
  };
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    const way: Way = JSON.parse(line);
    const figures = await client.ask<ConnectFigures>({ count: CONNECTIONS, targets: targets[way] });
    if (figures.failures > 0) throw new Error(`${figures.failures} of ${CONNECTIONS} connections failed: ${way}`);
    process.stdout.write(`${JSON.stringify(figures)}\n`);
  }
}

/** Asks workers that {@link answerWays}, each for each way once in every round. */
export async function takeRounds<Name extends string>(
  workers: Readonly<Record<Name, LineProcess>>,
  rounds: number,
): Promise<readonly Round<Name>[]> {
  const arms = (Object.keys(workers) as Name[]).flatMap((name) => WAYS.map((way) => ({ name, way })));
  const inOrder = permutations();
  const taken: Round<Name>[] = [];
  for (let round = -FIRST_ROUNDS; round < rounds; round++) {
    const figures: Record<string, Record<string, ConnectFigures>> = {};
    for (const index of inOrder(arms.length)) {
      const arm = arms[index];
      if (arm === undefined) continue;
      figures[arm.name] = { ...figures[arm.name], [arm.way]: await workers[arm.name].ask<ConnectFigures>(arm.way) };
    }
    if (round >= 0) taken.push(figures as Round<Name>); // every arm once
  }
  return taken;
}

/** The middle of a figure. */
export function middle<Name extends string>(
  rounds: readonly Round<Name>[],
  name: Name,
  way: Way,
  figure: Figure,
): number {
  return median(rounds.map((round) => round[name][way][figure]));
}

/** A service to a direct connection in the same namespace. */
export function ofDirect<Name extends string>(rounds: readonly Round<Name>[], name: Name, figure: Figure): Estimate {
  return estimate(rounds.map((round) => round[name].service[figure] / round[name].direct[figure]));
}

/** The same way in two namespaces. */
export function between<Name extends string>(
  rounds: readonly Round<Name>[],
  names: readonly [one: Name, other: Name],
  way: Way,
  figure: Figure,
): Estimate {
  const [one, other] = names;
  return estimate(rounds.map((round) => round[one][way][figure] / round[other][way][figure]));
}
