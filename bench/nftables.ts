/**
 * `npm run bench -- nftables`: what the nftables mode costs by size, next to `nft -f` doing the same in the same run. See
 * docs/performance.md.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import { measureConnection } from "./first-connection.ts";
import { type Namespace, withNamespace } from "./namespace.ts";
import { type NftablesFigures, type NftablesTask, PARTS, type Part } from "./nftables-figures.ts";
import { nftablesTable } from "./nftables-rows.ts";
import { judgeNftables } from "./nftables-targets.ts";
import { engineOptions } from "./run-worker.ts";

const WORKER = fileURLToPath(new URL("./nftables-worker.ts", import.meta.url));

/** The daemon takes long to start with more. */
const CONNECTION_SIZES: readonly number[] = [1000, 10_000];

/** What is measured of the flat layout; upstream has nothing like it. */
const FLAT_PARTS: readonly Part[] = ["changes", "burst"];

/** Changes times services: what keeps the largest size to a minute. */
const CHANGES_LIMIT = 3_000_000;

const USAGE = `Usage: npm run bench -- nftables [PART…] [options]

Measures the nftables mode against the nft program of this machine, in throw-away network namespaces. Needs root.

Parts, besides the first load and a restart, which are always measured; all of them by default:
  changes        one endpoint, a hundred, a new service; and what the kernel takes for one endpoint at least
  burst          changes at a steady rate
  healing        damage that other programs do
  upstream       nft -f of such changes, and the listing that upstream makes before each sync
  upstream-load  nft -f of the whole table
  connection     manifest to first connection, with the daemon (${CONNECTION_SIZES.join(" and ")} services only)

  --quick              100 and 1000 services, few repetitions; under half a minute
  --sizes N,…          services (default 100,1000,10000,30000)
  --endpoints N        endpoints of each service (default 5)
  --burst SECONDS      of changes at a steady rate (default 30)
  --rate N             of them a second (default 1000)
  --layout NAME        Compatible or Flat (default Compatible); of Flat only changes and burst are measured
  --limit SECONDS      for every run of nft; what is cut off is shown as such (default 300)
  --json FILE          write all figures
  --check              exit with status 1 when a target is missed
  --help               this text
`;

interface NftablesArguments {
  readonly tasks: readonly NftablesTask[];
  readonly jsonFile: string | undefined;
  readonly isChecking: boolean;
}

function readArguments(argv: readonly string[]): NftablesArguments | "help" {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      quick: { type: "boolean", default: false },
      sizes: { type: "string" },
      endpoints: { type: "string", default: "5" },
      burst: { type: "string", default: "30" },
      rate: { type: "string", default: "1000" },
      layout: { type: "string", default: "Compatible" },
      limit: { type: "string", default: "300" },
      json: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const unknown = positionals.find((name) => !PARTS.some((part) => part === name));
  if (unknown !== undefined) throw new RangeError(`${JSON.stringify(unknown)} is no part: ${PARTS.join(", ")}`);
  const layout = layoutNameOf(values.layout);
  if (layout === undefined) throw new RangeError(`--layout: ${JSON.stringify(values.layout)} is no layout`);
  const isFlat = layout === "Flat";
  const possible = isFlat ? FLAT_PARTS : PARTS;
  const parts = positionals.length === 0 ? possible : possible.filter((part) => positionals.includes(part));
  const { quick } = values;
  const sizes = values.sizes ?? (quick ? "100,1000" : "100,1000,10000,30000");
  const tasks = sizes.split(",").map((text): NftablesTask => {
    return {
      layout,
      services: positive("--sizes", text),
      endpointsEach: positive("--endpoints", values.endpoints),
      parts,
      changes: quick ? 100 : isFlat ? 500 : Math.min(500, Math.ceil(CHANGES_LIMIT / positive("--sizes", text))),
      nftChanges: quick ? 3 : 5,
      burstSeconds: quick ? 3 : positive("--burst", values.burst),
      burstRate: positive("--rate", values.rate),
      trials: quick ? 10 : 50,
      limitMs: 1000 * positive("--limit", values.limit),
    };
  });
  return { tasks, jsonFile: values.json, isChecking: values.check };
}

function positive(option: string, text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) {
    throw new RangeError(`${option}: ${JSON.stringify(text)} is no positive whole number`);
  }
  return number;
}

async function runWorker({ name }: Namespace, task: NftablesTask): Promise<NftablesFigures> {
  const node = [process.execPath, "--expose-gc", ...engineOptions()];
  const child = spawn("ip", ["netns", "exec", name, ...node, WORKER, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const outcome = await new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(signal ?? String(status)));
  });
  if (outcome !== "0") throw new Error(`the worker for ${task.services} services ended with ${outcome}`);
  return JSON.parse(output);
}

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchNftables(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const results: NftablesFigures[] = [];
  for (const task of args.tasks) {
    process.stderr.write(`measuring ${task.services} services × ${task.endpointsEach} endpoints…\n`);
    const figures = await withNamespace((namespace) => runWorker(namespace, task));
    const isConnecting = task.parts.includes("connection") && CONNECTION_SIZES.includes(task.services);
    results.push(
      isConnecting ? { ...figures, connection: await measureConnection({ ...task, mode: "nftables" }) } : figures,
    );
  }
  console.log(nftablesTable(results));
  console.log("");
  const verdicts = judgeNftables(results);
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (args.jsonFile !== undefined) {
    writeFileSync(args.jsonFile, `${JSON.stringify({ node: process.version, results, verdicts }, null, 2)}\n`);
  }
  return args.isChecking && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}
