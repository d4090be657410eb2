/**
 * `npm run bench -- userspace`: what it costs that the proxy carries the bytes itself, next to a direct connection, to a plain
 * `socket.pipe` and to the iptables mode, in one run. See docs/performance.md.
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { LOADS, type Load, type TrafficFigures, type TrafficResults, WAYS, type Way } from "./traffic-figures.ts";
import { TrafficNetwork } from "./traffic-network.ts";
import { judgeTraffic, trafficTable } from "./traffic-targets.ts";

const USAGE = `Usage: npm run bench -- userspace [options]

Measures connections, throughput and latency through the userspace mode, in throw-away network namespaces. Needs root.

  --quick            one short round; half a minute
  --rounds N         of every load over every way, in turns (default 5)
  --seconds N        for each (default 1.5)
  --json FILE        write all figures
  --check            exit with status 1 when a target is missed
  --help             this text
`;

interface TrafficArguments {
  readonly rounds: number;
  readonly seconds: number;
  readonly jsonFile: string | undefined;
  readonly isChecking: boolean;
}

function readArguments(argv: readonly string[]): TrafficArguments | "help" {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      rounds: { type: "string" },
      seconds: { type: "string" },
      json: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const rounds = positive("--rounds", values.rounds ?? (values.quick ? "1" : "5"));
  if (!Number.isInteger(rounds)) throw new RangeError(`--rounds: ${rounds} is no whole number`);
  const seconds = positive("--seconds", values.seconds ?? (values.quick ? "0.5" : "1.5"));
  return { rounds, seconds, jsonFile: values.json, isChecking: values.check };
}

function positive(option: string, text: string): number {
  const number = Number(text);
  if (!(number > 0 && number < 1000)) throw new RangeError(`${option}: ${JSON.stringify(text)} is no such number`);
  return number;
}

async function measureAll({ rounds, seconds }: TrafficArguments): Promise<TrafficResults> {
  const results = Object.fromEntries(
    LOADS.map((load) => [load, Object.fromEntries(WAYS.map((way) => [way, []]))]),
  ) as unknown as Record<Load, Record<Way, TrafficFigures[]>>;
  const network = await TrafficNetwork.create();
  try {
    for (let round = 1; round <= rounds; round++) {
      for (const load of LOADS) {
        process.stderr.write(`round ${round} of ${rounds}: ${load}…\n`);
        for (const way of WAYS) results[load][way].push(await network.measure(way, load, seconds));
      }
    }
  } finally {
    await network.destroy();
  }
  return results;
}

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchUserspace(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const results = await measureAll(args);
  console.log(trafficTable(results));
  console.log("");
  const verdicts = judgeTraffic(results);
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (args.jsonFile !== undefined) {
    writeFileSync(args.jsonFile, `${JSON.stringify({ node: process.version, results, verdicts }, null, 2)}\n`);
  }
  return args.isChecking && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}
