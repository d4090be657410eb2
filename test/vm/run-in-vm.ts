/**
 * Runs a program as root in a virtual machine with Debian's kernel, which has what the kernel of a container host may
 * lack: IPVS, dummy devices, SCTP. The machine sees the host's files under their own paths; what it writes is gone with it.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import { ensureMachineFiles, initialFileSystem, shellLine } from "./machine-files.ts";
import { lockMachine } from "./machine-lock.ts";
import { writeStrippedSources } from "./stripped-sources.ts";

/** The folder of the whole project. */
export const CHECKOUT = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
const CACHE = join(CHECKOUT, ".cache/vm");
const SOURCES = join(CACHE, "sources");
const PRELOAD = join(CHECKOUT, "test/vm/guest/load-stripped-sources.mjs");
const MEMORY = "2048M";
/** Where Debian's releases have it. */
const VIRTIOFSD = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];
const QEMU = "qemu-system-x86_64";
/** Another run may be ahead of this one. */
const TURN_LIMIT_MS = 1_800_000;
const SOCKET_LIMIT_MS = 10_000;

export interface VmJob {
  /** A program with its arguments; with `files`, what they are given to. @default `node --test` */
  readonly argv?: readonly string[];
  /** Test files, relative to the checkout or absolute. */
  readonly files?: readonly string[];
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** From the boot on; waiting for the machine and downloads do not count. @default 10 minutes */
  readonly timeoutMs?: number;
  /** Told what the program prints while it prints it. */
  readonly onOutput?: (text: string) => void;
}

export interface VmResult {
  /** The program's exit status; undefined when the machine ended before it, or was ended by the time limit. */
  readonly status: number | undefined;
  /** Everything it printed, on either stream; when the machine failed, the kernel's console follows. */
  readonly output: string;
  /** From the start of the machine to its end. */
  readonly durationMs: number;
}

/** Why there can be no virtual machine here, or `false`. It must be asked before {@link runInVm}. */
export function vmSkip(): string | false {
  if (process.platform !== "linux" || process.arch !== "x64") return "the virtual machine is for Linux on x86-64";
  if (!existsSync("/usr/bin/apt-get")) return "the virtual machine is made of Debian's packages: no apt-get here";
  if (process.getuid?.() !== 0) return "sharing the host's files with the virtual machine needs root";
  if (virtiofsd() === undefined) return "no virtiofsd: install qemu-system-common (virtiofsd from Debian 13 on)";
  if (spawnSync(QEMU, ["--version"]).status !== 0) return `no ${QEMU}: install qemu-system-x86`;
  return false;
}

function virtiofsd(): string | undefined {
  return VIRTIOFSD.find((path) => existsSync(path));
}

/** Runs the job to its end. @throws Error when the machine cannot be had. */
export async function runInVm(job: VmJob): Promise<VmResult> {
  const lock = await lockMachine(TURN_LIMIT_MS, (holder) =>
    process.stderr.write(`waiting for the virtual machine of process ${holder}\n`),
  );
  try {
    const files = ensureMachineFiles(CACHE);
    writeStrippedSources(CHECKOUT, SOURCES);
    const initrd = join(lock.folder, "initrd");
    writeFileSync(initrd, initialFileSystem(files, { checkout: CHECKOUT, command: commandOf(job) }));
    return await boot(lock.folder, ["-kernel", files.kernel, "-initrd", initrd], job);
  } finally {
    lock.release();
  }
}

function commandOf({ argv = ["node", "--test"], files = [], env = {} }: VmJob): string {
  const path = [join(CHECKOUT, "node_modules/.bin"), "/run/vm/bin", "/usr/local/sbin", "/usr/local/bin"];
  const variables = {
    PATH: [...path, "/usr/sbin", "/usr/bin", "/sbin", "/bin"].join(delimiter),
    HOME: "/root",
    LANG: "C.UTF-8",
    KPTS_VM: "1",
    KPTS_VM_CHECKOUT: CHECKOUT,
    KPTS_VM_SOURCES: SOURCES,
    NODE_OPTIONS: `--import ${pathToFileURL(PRELOAD)}`,
    NODE_COMPILE_CACHE: "/tmp/node-compile-cache",
    ...env,
  };
  const assignments = Object.entries(variables).map(([name, value]) => `export ${shellLine([`${name}=${value}`])}`);
  return [...assignments, `cd ${shellLine([CHECKOUT])}`, `exec ${shellLine([...argv, ...files])}`].join("\n");
}

/** Starts a program that the kernel ends when this process is gone, however it went. */
function startBound(file: string, args: readonly string[]): ChildProcess {
  return spawn("setpriv", ["--pdeathsig", "KILL", "--", file, ...args], { stdio: "pipe" });
}

async function boot(folder: string, kernel: readonly string[], job: VmJob): Promise<VmResult> {
  const started = performance.now();
  const socket = join(folder, "files.sock");
  const share = await shareFiles(socket);
  const machine = startBound(QEMU, [...machineArguments(folder, socket), ...kernel]);
  const ended = once(machine, "close");
  const limitMs = job.timeoutMs ?? 600_000;
  let timedOut = false;
  const limit = setTimeout(() => {
    timedOut = true;
    signalChild(machine, "SIGKILL");
  }, limitMs);
  let output = "";
  let complaints = "";
  machine.stdout?.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    job.onOutput?.(text);
  });
  machine.stderr?.setEncoding("utf8").on("data", (text: string) => {
    complaints += text;
  });
  try {
    await ended;
  } finally {
    clearTimeout(limit);
    signalChild(share, "SIGKILL");
  }
  const status = readFile(join(folder, "status")).trim();
  const durationMs = performance.now() - started;
  if (status !== "" && !timedOut) return { status: Number(status), output, durationMs };
  const cause = timedOut ? `the time limit of ${limitMs / 1000} s ended the machine` : "the machine ended too early";
  const failure = `\n${cause}; ${complaints}its console:\n${readFile(join(folder, "console")).slice(-4000)}\n`;
  job.onOutput?.(failure);
  return { status: undefined, output: output + failure, durationMs };
}

async function shareFiles(socket: string): Promise<ChildProcess> {
  const program = virtiofsd();
  if (program === undefined) throw new Error("no virtiofsd");
  const share = startBound(program, [`--socket-path=${socket}`, "-o", "source=/,sandbox=chroot,cache=always"]);
  let complaints = "";
  share.stderr?.setEncoding("utf8").on("data", (text: string) => {
    complaints = (complaints + text).slice(-2000);
  });
  share.stdout?.resume();
  const end = Date.now() + SOCKET_LIMIT_MS;
  while (!existsSync(socket)) {
    if (share.exitCode !== null || Date.now() > end) {
      signalChild(share, "SIGKILL");
      throw new Error(`${program} did not start: ${complaints}`);
    }
    await sleep(10);
  }
  return share;
}

function readFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** No device but these: shared files, a console for the kernel, one port for output and one for the exit status. */
function machineArguments(folder: string, socket: string): string[] {
  const options: Record<string, string[]> = {
    accel: ["tcg,thread=multi"],
    // Without AVX, which is slow to emulate and which Node.js uses where it is: a quarter faster than `max`.
    cpu: ["Nehalem"],
    smp: ["2"],
    m: [MEMORY],
    object: [`memory-backend-memfd,id=memory,size=${MEMORY},share=on`],
    machine: ["q35,memory-backend=memory"],
    display: ["none"],
    serial: [`file:${join(folder, "console")}`],
    append: ["console=ttyS0 quiet panic=-1 mitigations=off"],
    chardev: [
      `socket,id=files,path=${socket}`,
      // Its input stays open as long as this process lives; the guest cannot write to a port whose other end is gone.
      "stdio,id=output,signal=off",
      `file,id=status,path=${join(folder, "status")}`,
    ],
    device: [
      "vhost-user-fs-pci,chardev=files,tag=host",
      "virtio-serial-pci",
      "virtserialport,chardev=output,nr=1",
      "virtserialport,chardev=status,nr=2",
    ],
  };
  const words = Object.entries(options).flatMap(([name, values]) => values.flatMap((value) => [`-${name}`, value]));
  return ["-nodefaults", "-no-user-config", "-no-reboot", ...words];
}
