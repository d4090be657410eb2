/**
 * `npm run bench -- status`: how soon a daemon's inspect socket answers while changes come at a steady rate, what `kube-proxy status`
 * takes in all beside the start of Node.js alone, and what the whole service table costs the daemon.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { withNamespace } from "./namespace.ts";
import { engineOptions } from "./run-worker.ts";
import type { StatusFigures, StatusTask } from "./status-figures.ts";
import { ms, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./status-worker.ts", import.meta.url));
/** Wanted of an answer, while there are changes. */
const ANSWER_MS = 50;

const USAGE = `Usage: npm run bench -- status [options]

The inspect socket of a daemon (nftables mode, flat layout) while endpoints change. Needs root and \`npm run build\`.

  --sizes N,…          services (default 1000,10000)
  --rate N             changes a second (default 1000)
  --seconds N          for each size (default 10)
  --check              exit with status 1 when a target is missed
  --help               this text
`;

/** Runs the bench. @returns the exit status. */
export async function benchStatus(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      sizes: { type: "string", default: "1000,10000" },
      rate: { type: "string", default: "1000" },
      seconds: { type: "string", default: "10" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const results: StatusFigures[] = [];
  for (const services of values.sizes.split(",").map(Number)) {
    const task = { services, rate: Number(values.rate), seconds: Number(values.seconds) };
    results.push(await withNamespace(({ name }) => runWorker(name, task)));
  }
  console.log(
    table(
      [
        "",
        "answers",
        "p50, ms",
        "p99, ms",
        "at most, ms",
        "change p99, ms",
        "command, cpu ms",
        "node alone, cpu ms",
        "table, ms",
      ],
      results.map((one) => [
        `${one.services} services, ${one.rate} changes/s`,
        String(one.answers),
        ...[one.p50Ms, one.p99Ms, one.maxMs, one.changeP99Ms, one.commandCpuMs, one.nodeCpuMs, one.tableMs].map(ms),
      ]),
    ),
  );
  const verdicts = results.map(({ services, p99Ms }) => {
    const text = `${services} services: status is answered in ${ms(p99Ms)} ms (p99), ${ANSWER_MS} ms wanted`;
    return { passed: p99Ms <= ANSWER_MS, text };
  });
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  return values.check && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}

async function runWorker(namespace: string, task: StatusTask): Promise<StatusFigures> {
  const node = [process.execPath, "--expose-gc", ...engineOptions()];
  const child = spawn("ip", ["netns", "exec", namespace, ...node, WORKER, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  child.on("error", reject);
  child.on("close", (status, signal) => resolve(signal ?? String(status)));
  const outcome = await promise;
  if (outcome !== "0") throw new Error(`the worker for ${task.services} services ended with ${outcome}`);
  return JSON.parse(output);
}
