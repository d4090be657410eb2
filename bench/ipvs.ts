/**
 * `npm run bench -- ipvs`: what the ipvs mode costs with a kernel in memory; and what its kernel boundary costs, next to
 * ipvsadm, ipset and ip doing the same, in one run inside the virtual machine of the tests. See docs/performance.md.
 */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { MACHINES, runInVm } from "../testkit/vm/run-in-vm.ts";
import type { IpvsFigures, IpvsTask } from "./ipvs-figures.ts";
import { type IpvsMemoryStep, type IpvsMemoryTask, measureInMemory } from "./ipvs-memory.ts";
import { engineOptions } from "./run-worker.ts";
import { median } from "./statistics.ts";
import { ms, table } from "./table.ts";
import type { Verdict } from "./targets.ts";

const WORKER = fileURLToPath(new URL("./ipvs-vm.ts", import.meta.url));
const LIMIT_MS = 900_000;

const USAGE = `Usage: npm run bench -- ipvs [options]

Measures planning and the number of messages with a kernel in memory; then IPVS, IP sets and addresses over netlink against
ipvsadm, ipset and ip, in a virtual machine. That needs root, qemu and, once, 28 MB of Debian packages. The machine is
emulated: take ratios rather than figures.

  --quick            500 services; 200 virtual servers, 1000 set entries, few rounds
  --memory           without the virtual machine
  --services N       in memory (default 10000)
  --servers N        virtual servers, and addresses (default 2000)
  --endpoints N      real servers of each (default 5)
  --entries N        of the set (default 10000)
  --rounds N         of each side, in turns (default 5)
  --json FILE        write all figures
  --check            exit with status 1 when a target is missed
  --help             this text
`;

interface IpvsArguments {
  /** Undefined: no virtual machine. */
  readonly task: IpvsTask | undefined;
  readonly memory: IpvsMemoryTask;
  readonly jsonFile: string | undefined;
  readonly isChecking: boolean;
}

/** Throws a RangeError or TypeError for a command line that is wrong. @returns `help` when that is asked for. */
function readArguments(argv: readonly string[]): IpvsArguments | "help" {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      memory: { type: "boolean", default: false },
      services: { type: "string" },
      servers: { type: "string" },
      endpoints: { type: "string", default: "5" },
      entries: { type: "string" },
      rounds: { type: "string" },
      json: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { quick } = values;
  const virtualServers = positive("--servers", values.servers ?? (quick ? "200" : "2000"));
  const task: IpvsTask = {
    virtualServers,
    realServersEach: positive("--endpoints", values.endpoints),
    setEntries: positive("--entries", values.entries ?? (quick ? "1000" : "10000")),
    addresses: virtualServers,
    rounds: positive("--rounds", values.rounds ?? (quick ? "3" : "5")),
  };
  const memory: IpvsMemoryTask = {
    services: positive("--services", values.services ?? (quick ? "500" : "10000")),
    endpointsEach: task.realServersEach,
    rounds: task.rounds,
  };
  return { task: values.memory ? undefined : task, memory, jsonFile: values.json, isChecking: values.check };
}

function positive(option: string, text: string): number {
  const number = Number(text);
  if (Number.isInteger(number) && number > 0) return number;
  throw new RangeError(`${option}: ${JSON.stringify(text)} is no positive whole number`);
}

/** The steps as a table. Pure. */
export function ipvsTable({ steps }: IpvsFigures): string {
  const rows = steps.map(({ what, tool, oursMs, toolMs, pausesMs }) => [
    what,
    tool,
    ms(median(oursMs)),
    ms(median(toolMs)),
    (median(oursMs) / median(toolMs)).toFixed(2),
    ms(median(pausesMs)),
  ]);
  return table(["what", "tool", "ours ms", "tool ms", "ours/tool", "longest pause ms"], rows);
}

/** Nothing may take longer over netlink than with the system's tool, the start of its process included. Pure. */
export function judgeIpvs({ steps }: IpvsFigures): Verdict[] {
  return steps.map(({ what, tool, oursMs, toolMs }) => {
    const ratio = median(oursMs) / median(toolMs);
    return { passed: ratio < 1, text: `ipvs: ${what}: ${ratio.toFixed(2)} times what ${tool} takes (under 1)` };
  });
}

/** The steps in memory as a table. Pure. */
export function memoryTable(steps: readonly IpvsMemoryStep[]): string {
  const rows = steps.map(({ what, ms: times, messages, restores }) => [
    what,
    ms(median(times)),
    ms(Math.max(...times)),
    `${messages.ipvs}`,
    `${messages.ipset}`,
    `${messages.addresses}`,
    `${restores}`,
  ]);
  return table(["what", "median ms", "longest ms", "IPVS", "sets", "addresses", "restores"], rows);
}

/** One added endpoint must cost one message, one replaced endpoint three, and neither a process. Pure. */
export function judgeMemory(steps: readonly IpvsMemoryStep[]): Verdict[] {
  const limits = new Map([
    ["one endpoint more", 1],
    // Its connections are asked for.
    ["one endpoint replaced", 3],
  ]);
  return steps.flatMap(({ what, messages, restores }) => {
    const limit = limits.get(what);
    if (limit === undefined) return [];
    const count = messages.ipvs + messages.ipset + messages.addresses;
    const text = `ipvs in memory: ${what}: ${count} messages and ${restores} processes (${limit} and 0)`;
    return [{ passed: count <= limit && restores === 0, text }];
  });
}

async function measureInMachine(task: IpvsTask): Promise<IpvsFigures> {
  const reason = MACHINES.qemu.skip();
  if (reason !== false) throw new Error(reason);
  const { status, output } = await runInVm({
    machine: "qemu",
    argv: ["node", ...engineOptions(), WORKER, JSON.stringify(task)],
    timeoutMs: LIMIT_MS,
  });
  const last = output.trimEnd().split("\n").at(-1) ?? "";
  if (status !== 0 || !last.startsWith("{")) throw new Error(`the bench in the virtual machine failed:\n${output}`);
  return JSON.parse(last);
}

/** Runs the bench. @returns the exit status. */
export async function benchIpvs(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  const memory = await measureInMemory(args.memory);
  console.log(`With a kernel in memory; messages and restores of one sync.\n${memoryTable(memory)}\n`);
  const figures = args.task === undefined ? undefined : await measureInMachine(args.task);
  if (figures !== undefined) {
    console.log(`${figures.machine}\n\nMilliseconds by the clock, medians.\n${ipvsTable(figures)}\n`);
  }
  const verdicts = [...judgeMemory(memory), ...(figures === undefined ? [] : judgeIpvs(figures))];
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (args.jsonFile !== undefined) {
    writeFileSync(args.jsonFile, `${JSON.stringify({ memory, figures, verdicts }, null, 2)}\n`);
  }
  return args.isChecking && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}
