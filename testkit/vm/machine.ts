/** What the virtual machines have in common: how they are told what to run, and how they are watched. */
import { type ChildProcess, spawn } from "node:child_process";

/** What a machine boots. */
export interface MachineFiles {
  readonly kernel: string;
  readonly busybox: string;
  /** The folder with `modules.dep`. */
  readonly modules: string;
}

/** What the first program inside must know about the machine. */
export interface GuestSettings {
  /** `mount` arguments for the host's files, read-only. */
  readonly hostFiles: string;
  /** Modules needed to see the host's files and talk to the host, and those that the kernel does not load on demand. */
  readonly bootModules: readonly string[];
  /** Where output and the exit status go; may be patterns. */
  readonly outputDevice: string;
  readonly statusDevice: string;
  /** Whether `iptables` is the legacy kind, because the kernel has no other. */
  readonly legacyIptables: boolean;
  /** Whether cgroup2 is mounted: this kernel attaches programs there. */
  readonly cgroups: boolean;
}

/** A machine that has been started. */
export interface RunningMachine {
  /** Ends with the machine; its standard output is the job's. */
  readonly process: ChildProcess;
  /** The exit status that the job has written; empty until then. */
  status(): string;
  /** Output of the kernel and of the program that runs it. */
  console(): string;
  /** Ends what runs beside the process. */
  cleanUp(): void;
}

export interface StartOptions {
  /** Empty, for sockets and logs. */
  readonly folder: string;
  readonly files: MachineFiles;
  /** Keeps what is determined once. */
  readonly cache: string;
  /** The initial file system. */
  readonly initrd: string;
  readonly memoryMegabytes: number;
  /** Number among the machines that run side by side, from 0. */
  readonly index: number;
}

export interface Machine {
  readonly guest: GuestSettings;
  /** Why it is unavailable here, or `false`. */
  skip(): string | false;
  /** Downloads what is not cached yet. @throws Error that says what is unavailable. */
  files(cache: string): MachineFiles;
  start(options: StartOptions): Promise<RunningMachine>;
}

/** Why there can be no machine of any kind here, or `false`. */
export function skipEveryMachine(): string | false {
  if (process.platform !== "linux" || process.arch !== "x64") return "the virtual machine is for Linux on x86-64";
  if (process.getuid?.() !== 0) return "sharing the host's files with the virtual machine needs root";
  return false;
}

/** Starts a program that the kernel ends when this process is gone, however it ended. */
export function startBound(
  file: string,
  args: readonly string[],
  options: { readonly env?: NodeJS.ProcessEnv; readonly extraPipes?: number } = {},
): ChildProcess {
  const stdio = Array.from({ length: 3 + (options.extraPipes ?? 0) }, () => "pipe" as const);
  return spawn("setpriv", ["--pdeathsig", "KILL", "--", file, ...args], { stdio, env: options.env ?? process.env });
}
