/** How soon an HTTP server of this process answers another process, and how long this one works at a stretch, while it is busy. */
import { get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { ownCpuMs } from "./memory.ts";
import { type Spread, spread } from "./table.ts";
import { startLines } from "./workers.ts";

const SELF = fileURLToPath(import.meta.url);
const WARM_UP = 50;
/** How often the thread's processor time is read. */
const LOOK_MS = 1;

/** Where to connect, each time with a new connection. */
export interface Asked {
  readonly port?: number;
  readonly socketPath?: string;
  readonly path: string;
  readonly pauseMs: number;
}

/** Runs the work while another process sends requests repeatedly. */
export async function withLatency<T>(asked: Asked, work: () => Promise<T>): Promise<readonly [T, Spread]> {
  const poller = startLines([process.execPath, SELF, JSON.stringify(asked)]);
  try {
    await poller.next();
    const result = await work();
    return [result, JSON.parse((await poller.finish()).at(-1) ?? "")];
  } finally {
    poller.end();
  }
}

/** Runs the work. @returns the longest stretch that this thread worked, in processor time: other processes count little. */
export async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  let [longestMs, lastMs] = [0, ownCpuMs()];
  const look = (): void => {
    const nowMs = ownCpuMs();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
  };
  const looking = setInterval(look, LOOK_MS);
  await work().finally(() => clearInterval(looking));
  look();
  return longestMs;
}

/** The other process: sends requests until its input ends, then reports how long the answers took. */
async function poll({ pauseMs, ...where }: Asked): Promise<void> {
  const ask = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const request = get({ ...where, agent: false }, (response) => void response.resume().on("end", resolve));
      request.on("error", reject);
    });
  let isOver = false;
  process.stdin.resume().on("end", () => {
    isOver = true;
  });
  // Leaves out the first connection and code that runs for the first time.
  for (let n = 0; n < WARM_UP; n += 1) await ask();
  process.stdout.write("ready\n");
  const times: number[] = [];
  while (!isOver) {
    const startMs = performance.now();
    await ask();
    times.push(performance.now() - startMs);
    await sleep(pauseMs);
  }
  process.stdout.write(`${JSON.stringify(spread(times))}\n`, () => process.exit());
}

if (process.argv[1] === SELF) await poll(JSON.parse(process.argv[2] ?? "{}"));
