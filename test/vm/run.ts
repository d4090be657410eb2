/**
 * `node test/vm/run.ts [--timeout SECONDS] FILE…` runs test files in the virtual machine; `… --exec PROGRAM ARGUMENT…`
 * runs any program there. Prints what it prints and ends with its exit status.
 */
import { runInVm, type VmJob, vmSkip } from "./run-in-vm.ts";

const USAGE = "usage: node test/vm/run.ts [--timeout SECONDS] FILE… | --exec PROGRAM ARGUMENT…\n";

function parse(words: readonly string[]): VmJob | undefined {
  const [first, ...rest] = words;
  if (first === undefined) return undefined;
  if (first === "--timeout") {
    const [seconds, ...others] = rest;
    const job = parse(others);
    return job === undefined || !(Number(seconds) > 0) ? undefined : { ...job, timeoutMs: Number(seconds) * 1000 };
  }
  if (first === "--exec") return rest.length === 0 ? undefined : { argv: rest };
  return first.startsWith("-") ? undefined : { files: words };
}

async function main(): Promise<number> {
  const job = parse(process.argv.slice(2));
  if (job === undefined) {
    process.stderr.write(USAGE);
    return 2;
  }
  const reason = vmSkip();
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
