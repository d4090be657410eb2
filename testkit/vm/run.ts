/**
 * `node testkit/vm/run.ts [--machine uml|qemu|qemu-6.12] [--timeout SECONDS] FILE…` runs test files in a virtual machine;
 * `… --exec PROGRAM ARGUMENT…` runs any program there. Prints what it prints and ends with its exit status.
 */
import { isMachineName, MACHINES, runInVm, type VmJob } from "./run-in-vm.ts";

const USAGE =
  "usage: node testkit/vm/run.ts [--machine uml|qemu|qemu-6.12] [--timeout SECONDS] FILE… | --exec PROGRAM ARGUMENT…\n";

function parse(words: readonly string[]): VmJob | undefined {
  const [first, ...rest] = words;
  if (first === undefined) return undefined;
  if (first === "--timeout") {
    const [seconds, ...others] = rest;
    const job = parse(others);
    return job === undefined || !(Number(seconds) > 0) ? undefined : { ...job, timeoutMs: Number(seconds) * 1000 };
  }
  if (first === "--machine") {
    const [name = "", ...others] = rest;
    const job = parse(others);
    return job === undefined || !isMachineName(name) ? undefined : { ...job, machine: name };
  }
  if (first === "--exec") return rest.length === 0 ? undefined : { machine: "uml", argv: rest };
  return first.startsWith("-") ? undefined : { machine: "uml", files: words };
}

async function main(): Promise<number> {
  const job = parse(process.argv.slice(2));
  if (job === undefined) {
    process.stderr.write(USAGE);
    return 2;
  }
  const reason = MACHINES[job.machine].skip();
  if (reason !== false) throw new Error(reason);
  const { status, durationMs } = await runInVm({ ...job, onOutput: (text) => process.stdout.write(text) });
  process.stderr.write(`(virtual machine: ${(durationMs / 1000).toFixed(1)} s)\n`);
  return status ?? 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
  process.exitCode = 1;
}
