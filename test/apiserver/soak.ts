/**
 * `npm run soak [-- --seconds N --mode nftables|iptables --seed N]`: the long version of soak.test.ts, by default ten
 * minutes. `--each` runs every fault once by itself. `--outages 10,60` (with `--services N`) measures how soon a change
 * is in the kernel after the API server was away for so many seconds and lost its history. Needs root.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { atExit, withNamespace } from "../../bench/namespace.ts";
import { signalChild } from "../../src/kernel/child-process.ts";
import { measureRecovery } from "./recovery-run.ts";
import { judgeSoak, median } from "./soak-judgement.ts";
import { type Recovery, recoverFromEach, type SoakReport, soak } from "./soak-run.ts";

const IN_NAMESPACE = "KPTS_SOAK_NETNS";

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function printRecoveries(recoveries: readonly Recovery[]): void {
  const seconds = (milliseconds: number): string => (milliseconds / 1000).toFixed(1).padStart(6);
  say(`\n${"recovery in seconds".padEnd(40)} median longest times`);
  for (const { fault, milliseconds } of recoveries) {
    const longest = Math.max(...milliseconds);
    const times = String(milliseconds.length).padStart(5);
    say(`  ${fault.padEnd(38)} ${seconds(median(milliseconds))}  ${seconds(longest)} ${times}`);
  }
}

function print({ recoveries, changes, before, after, rssMb, livezMs }: SoakReport): void {
  printRecoveries(recoveries);
  say(`${changes} changes; longest answer of /livez ${livezMs.toFixed(0)} ms`);
  say(`before ${JSON.stringify(before)}, after ${JSON.stringify(after)}`);
  say(`resident MB every 5 s: ${rssMb.map((megabytes) => megabytes.toFixed(0)).join(" ")}`);
}

/** Runs this file again in a new namespace. @returns its exit status. */
async function inNamespace(): Promise<number> {
  return await withNamespace(async ({ name }) => {
    const again = [process.execPath, fileURLToPath(import.meta.url), ...process.argv.slice(2)];
    const child = spawn("ip", ["netns", "exec", name, ...again], {
      stdio: "inherit",
      env: { ...process.env, [IN_NAMESPACE]: name },
    });
    const forget = atExit(() => void signalChild(child, "SIGKILL"));
    const status = await new Promise<number>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => resolve(code ?? 1));
    });
    forget();
    return status;
  });
}

function numbersOf(list: string): readonly number[] {
  return list.split(",").filter(Boolean).map(Number);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    args: process.argv.slice(2).filter((word) => word !== "--"),
    options: {
      seconds: { type: "string", default: "600" },
      mode: { type: "string", default: "nftables" },
      seed: { type: "string", default: String(Date.now() % 1e6) },
      each: { type: "boolean", default: false },
      outages: { type: "string" },
      "bad-tokens": { type: "string", default: "" },
      services: { type: "string", default: "3000" },
    },
  });
  const { mode, outages } = values;
  if (outages !== undefined) {
    const { expiredErrors } = await measureRecovery({
      services: Number(values.services),
      outageSeconds: numbersOf(outages),
      badTokenSeconds: numbersOf(values["bad-tokens"]),
      onProgress: say,
    });
    say(`error lines about lost history: ${expiredErrors.length}`);
    return;
  }
  if (mode !== "nftables" && mode !== "iptables") throw new RangeError(`--mode ${mode}: must be nftables or iptables`);
  const [seconds, seed] = [Number(values.seconds), Number(values.seed)];
  if (values.each) {
    printRecoveries(await recoverFromEach(mode, seed, say));
    return;
  }
  say(`${seconds} s in ${mode} mode, seed ${seed}`);
  const report = await soak({ mode, seconds, seed, hasLongFaults: true, onProgress: say });
  print(report);
  judgeSoak(report);
  say("the kernel holds what a full sync gives; nothing leaked");
}

if (process.env[IN_NAMESPACE] === undefined) process.exitCode = await inNamespace();
else await main();
