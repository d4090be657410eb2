/** What the two virtual machines have in common: how they are told what to run, and how they are watched. */
import { type ChildProcess, spawn } from "node:child_process";

/** What a machine boots. */
export interface MachineFiles {
  readonly kernel: string;
  readonly busybox: string;
  /** The folder with `modules.dep`. */
  readonly modules: string;
}

/** What the first program inside has to know of the machine. */
export interface GuestSettings {
  /** Words of `mount` for the host's files, read-only. */
  readonly hostFiles: string;
  /** Needed to see the host's files and to talk to the host, and what the kernel does not load when it is asked for. */
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
  /** Ends with the machine; its standard output is what the job prints. */
  readonly process: ChildProcess;
  /** What the job has written as its exit status, empty as long as it has not. */
  status(): string;
  /** What the kernel, and the program that runs it, have said. */
  console(): string;
  /** Ends what is beside the process. */
  cleanUp(): void;
}

export interface StartOptions {
  /** Empty, for sockets and logs. */
  readonly folder: string;
  readonly files: MachineFiles;
  /** Keeps what is asked for once. */
  readonly cache: string;
  /** The initial file system. */
  readonly initrd: string;
  readonly memoryMegabytes: number;
  /** Counts the machines that run side by side, from 0. */
  readonly index: number;
}

export interface Machine {
  readonly guest: GuestSettings;
  /** Why it cannot be had here, or `false`. */
  skip(): string | false;
  /** Downloads what is not in the cache yet. @throws Error that says what could not be had. */
  files(cache: string): MachineFiles;
  start(options: StartOptions): Promise<RunningMachine>;
}

/** Why there can be no machine of any kind here, or `false`. */
export function skipEveryMachine(): string | false {
  if (process.platform !== "linux" || process.arch !== "x64") return "the virtual machine is for Linux on x86-64";
  if (process.getuid?.() !== 0) return "sharing the host's files with the virtual machine needs root";
  return false;
}

/** Starts a program that the kernel ends when this process is gone, however it went. */
export function startBound(
  file: string,
  args: readonly string[],
  options: { readonly env?: NodeJS.ProcessEnv; readonly extraPipes?: number } = {},
): ChildProcess {
  const stdio = Array.from({ length: 3 + (options.extraPipes ?? 0) }, () => "pipe" as const);
  return spawn("setpriv", ["--pdeathsig", "KILL", "--", file, ...args], { stdio, env: options.env ?? process.env });
}
