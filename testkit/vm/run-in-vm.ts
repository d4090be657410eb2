/**
 * Runs a program as root in a virtual machine, whose kernel has what a container host's may lack: IPVS, dummy devices,
 * SCTP. The machine sees the host's files under their own paths; its writes are lost with it.
 */
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import { initialFileSystem, shellLine } from "./initial-files.ts";
import type { Machine, StartOptions } from "./machine.ts";
import { lockMachine } from "./machine-lock.ts";
import { qemuMachine } from "./qemu-machine.ts";
import { writeStrippedSources } from "./stripped-sources.ts";
import { umlMachine } from "./uml-machine.ts";

/** The root folder of the project. */
export const CHECKOUT = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
const CACHE = join(CHECKOUT, ".cache/vm");
const SOURCES = join(CACHE, "sources");
const PRELOAD = join(CHECKOUT, "testkit/vm/guest/load-stripped-sources.cjs");
const MEMORY_MEGABYTES = 2048;
/** Another run may be ahead of this one. */
const TURN_LIMIT_MS = 1_800_000;

/** The machines by the names used in commands and settings. */
export const MACHINES: Readonly<Record<MachineName, Machine>> = {
  uml: umlMachine,
  qemu: qemuMachine({
    name: "qemu",
    metapackage: "linux-image-cloud-amd64",
    mayBeAbsent: false,
    processors: 2,
  }),
  "qemu-6.12": qemuMachine({
    name: "qemu-6.12",
    metapackage: "linux-image-6.12-cloud-amd64",
    mayBeAbsent: true,
    // With two emulated ones, one hit a breakpoint with which the other had patched the kernel's code, in 1 of 3 runs: a panic.
    processors: 1,
  }),
};

export type MachineName = "uml" | "qemu" | "qemu-6.12";

export function isMachineName(text: string): text is MachineName {
  return Object.hasOwn(MACHINES, text);
}

export interface VmJob {
  readonly machine: MachineName;
  /** A program with its arguments; with `files`, these follow. @default `node --test` */
  readonly argv?: readonly string[];
  /** Test files, relative to the checkout or absolute. */
  readonly files?: readonly string[];
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** From boot; waiting for the machine and downloads do not count. @default 10 minutes */
  readonly timeoutMs?: number;
  /** Called with the program's output as it arrives. */
  readonly onOutput?: (text: string) => void;
}

export interface VmResult {
  /** The program's exit status; undefined if the machine ended before it, or by the time limit. */
  readonly status: number | undefined;
  /** Its whole output, from both streams; if the machine failed, the kernel's console follows. */
  readonly output: string;
  /** From the start of the machine to its end. */
  readonly durationMs: number;
}

/** Runs the job to its end. Check the machine's `skip` first. @throws Error if the machine is unavailable. */
export async function runInVm(job: VmJob): Promise<VmResult> {
  const [result] = await runInVms([job]);
  if (result === undefined) throw new Error("a machine without a result");
  return result;
}

/** Runs each job in its own machine, side by side, until all have ended. */
export async function runInVms(jobs: readonly VmJob[]): Promise<readonly VmResult[]> {
  const lock = await lockMachine(TURN_LIMIT_MS, (holder) =>
    process.stderr.write(`waiting for the virtual machine of process ${holder}\n`),
  );
  try {
    writeStrippedSources(CHECKOUT, SOURCES);
    const booted = jobs.map((job, index) => {
      const machine = MACHINES[job.machine];
      const files = machine.files(CACHE);
      const folder = join(lock.folder, String(index));
      mkdirSync(folder);
      const initrd = join(folder, "initrd");
      writeFileSync(initrd, initialFileSystem(files, machine.guest, { checkout: CHECKOUT, command: commandOf(job) }));
      return boot(machine, { folder, files, initrd, cache: CACHE, memoryMegabytes: MEMORY_MEGABYTES, index }, job);
    });
    return await Promise.all(booted);
  } finally {
    lock.release();
  }
}

function commandOf({ machine, argv = ["node", "--test"], files = [], env = {} }: VmJob): string {
  const path = [join(CHECKOUT, "node_modules/.bin"), "/run/vm/bin", "/usr/local/sbin", "/usr/local/bin"];
  const variables = {
    PATH: [...path, "/usr/sbin", "/usr/bin", "/sbin", "/bin"].join(delimiter),
    HOME: "/root",
    LANG: "C.UTF-8",
    KPTS_VM: machine,
    KPTS_VM_CHECKOUT: CHECKOUT,
    KPTS_VM_SOURCES: SOURCES,
    NODE_OPTIONS: `--require ${JSON.stringify(PRELOAD)}`,
    // The host's compiled code; what is compiled inside is lost with the layer in memory.
    NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? join(CHECKOUT, ".cache/compiled"),
    ...env,
  };
  const assignments = Object.entries(variables).map(([name, value]) => `export ${shellLine([`${name}=${value}`])}`);
  return [...assignments, `cd ${shellLine([CHECKOUT])}`, `exec ${shellLine([...argv, ...files])}`].join("\n");
}

async function boot(machine: Machine, options: StartOptions, job: VmJob): Promise<VmResult> {
  const started = performance.now();
  const running = await machine.start(options);
  const { process: child } = running;
  const ended = once(child, "close");
  const limitMs = job.timeoutMs ?? 600_000;
  let timedOut = false;
  const limit = setTimeout(() => {
    timedOut = true;
    signalChild(child, "SIGKILL");
  }, limitMs);
  let output = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    job.onOutput?.(text);
  });
  try {
    await ended;
  } finally {
    clearTimeout(limit);
    running.cleanUp();
  }
  const status = running.status();
  const durationMs = performance.now() - started;
  if (status !== "" && !timedOut) return { status: Number(status), output, durationMs };
  const cause = timedOut ? `the time limit of ${limitMs / 1000} s ended the machine` : "the machine ended too early";
  const failure = `\n${cause}; its console:\n${running.console().slice(-4000)}\n`;
  job.onOutput?.(failure);
  return { status: undefined, output: output + failure, durationMs };
}
