/**
 * Debian's user-mode Linux: a kernel that is a host program. It runs at nearly the host's speed on one processor, has
 * IPVS, SCTP, dummy devices and the legacy iptables, and no nftables for IPv4 or IPv6.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ensurePackage } from "./debian-package.ts";
import {
  type GuestSettings,
  type Machine,
  type RunningMachine,
  type StartOptions,
  skipEveryMachine,
  startBound,
} from "./machine.ts";
import { modulesBelow, rememberedFiles } from "./machine-files.ts";
import { batchingKernel } from "./uml-kernel.ts";

const guest: GuestSettings = {
  hostFiles: "-t hostfs -o ro none",
  // The kernel does not request ipv6 when an address is added.
  bootModules: ["overlay", "ipv6"],
  outputDevice: "/dev/ttyS0",
  statusDevice: "/dev/ttyS1",
  legacyIptables: true,
  cgroups: false,
};

/**
 * Where the machine's memory becomes a file: it must be large enough, or the machine is killed midway (a container's
 * /dev/shm often has 64 MB), and it must allow executables.
 */
function memoryFolder(megabytes: number, other: string): string {
  const folder = "/dev/shm";
  const mount = readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" "))
    .findLast(([, path]) => path === folder);
  if (mount === undefined || mount[3]?.split(",").includes("noexec")) return other;
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize > megabytes * 2 ** 20 ? folder : other;
}

/**
 * Each system call inside switches between two host processes, one of which always waits: on one processor that takes
 * half as long as on two.
 */
function processorFor(index: number): string {
  const list = /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  const allowed = list.split(",").flatMap((range) => {
    const [first = 0, last = first] = range.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, offset) => first + offset);
  });
  return String(allowed.at(-1 - (index % allowed.length)) ?? 0);
}

/**
 * Kernel 6.1 keeps a fixed part of a process's extended registers, but with AMX's larger state the host accepts no part back: the
 * first program dies ("Attempted to kill init"). There `whole-xstate.c` is loaded into it. @returns undefined if it is not needed.
 */
function wholeXstate(folder: string): string | undefined {
  if (!/^flags\s*:.* amx_tile/m.test(readFileSync("/proc/cpuinfo", "utf8"))) return undefined;
  const library = join(folder, "whole-xstate.so");
  const source = fileURLToPath(new URL("whole-xstate.c", import.meta.url));
  execFileSync("cc", ["-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"]);
  return library;
}

/** Host tests may run beside it, more than there are processors: about as much for it as for them. */
const NICE = "-4";

async function start({ folder, files, initrd, memoryMegabytes, index }: StartOptions): Promise<RunningMachine> {
  // The kernel is many processes, which would survive if only the first one were killed: a PID namespace ends them all.
  const inNamespace = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--", files.kernel, `initrd=${initrd}`];
  const words = ["--cpu-list", processorFor(index), "nice", "-n", NICE, ...inNamespace];
  const options = [
    `mem=${memoryMegabytes}M`,
    `uml_dir=${folder}`,
    "panic=-1",
    // The kernel writes to standard error; the job's output is the first serial line, its exit status the second.
    ...["con=null", "con0=null,fd:2", "ssl=null", "ssl0=null,fd:1", "ssl1=null,fd:3"],
  ];
  const library = wholeXstate(folder);
  const env = {
    ...process.env,
    TMPDIR: memoryFolder(memoryMegabytes, folder),
    ...(library !== undefined && { LD_PRELOAD: library }),
  };
  const machine = startBound("taskset", [...words, ...options], { env, extraPipes: 1 });
  let said = "";
  let status = "";
  machine.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-16_000);
  });
  machine.stdio[3]?.on("data", (chunk) => {
    status += String(chunk);
  });
  return { process: machine, status: () => status.trim(), console: () => said, cleanUp: () => {} };
}

export const umlMachine: Machine = {
  guest,
  skip() {
    const reason = skipEveryMachine();
    if (reason !== false) return reason;
    if (existsSync("/usr/bin/apt-get")) return false;
    return "the virtual machine is made of Debian's packages: no apt-get here";
  },
  files(cache) {
    const files = rememberedFiles(cache, "uml", () => {
      const root = ensurePackage(cache, { name: "user-mode-linux", proof: /modules\.dep$/ });
      return { kernel: join(root, "usr/bin/linux.uml"), modules: modulesBelow(join(root, "usr/lib/uml/modules")) };
    });
    return { ...files, kernel: batchingKernel(files.kernel) };
  },
  start,
};
