/** Debian's own kernels (the small flavour, `linux-image-cloud-amd64`) in qemu, emulated where KVM does not work. */
import { type ChildProcess, spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { signalChild } from "../../src/kernel/child-process.ts";
import { acceleration, QEMU } from "./acceleration.ts";
import { dependencyOf, ensurePackage } from "./debian-package.ts";
import {
  type GuestSettings,
  type Machine,
  type RunningMachine,
  type StartOptions,
  skipEveryMachine,
  startBound,
} from "./machine.ts";
import { listDependencies, modulesBelow, rememberedFiles } from "./machine-files.ts";

/** Its paths in Debian's releases. */
const VIRTIOFSD = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];
const SOCKET_LIMIT_MS = 10_000;

const guest: GuestSettings = {
  hostFiles: "-t virtiofs -o ro host",
  bootModules: ["virtio_pci", "virtio_console", "virtiofs", "overlay"],
  outputDevice: "/dev/vport*p1",
  statusDevice: "/dev/vport*p2",
  legacyIptables: false,
  cgroups: true,
};

function virtiofsd(): string | undefined {
  return VIRTIOFSD.find((path) => existsSync(path));
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

/** Only these devices: shared files, a console for the kernel, one port for output and one for the exit status. */
function machineArguments(
  { folder, files, initrd, cache, memoryMegabytes }: StartOptions,
  processors: number,
  socket: string,
): string[] {
  const { accel, cpu } = acceleration(cache, files);
  const memory = `${memoryMegabytes}M`;
  const options: Record<string, string[]> = {
    kernel: [files.kernel],
    initrd: [initrd],
    accel: [accel],
    cpu: [cpu],
    smp: [`${processors}`],
    m: [memory],
    object: [`memory-backend-memfd,id=memory,size=${memory},share=on`],
    machine: ["q35,memory-backend=memory"],
    display: ["none"],
    serial: [`file:${join(folder, "console")}`],
    append: ["console=ttyS0 quiet panic=-1 mitigations=off"],
    chardev: [
      `socket,id=files,path=${socket}`,
      // Its input stays open as long as this process lives; the guest cannot write to a port whose other end is closed.
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

function readFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

async function start(options: StartOptions, processors: number): Promise<RunningMachine> {
  const { folder } = options;
  const socket = join(folder, "files.sock");
  const share = await shareFiles(socket);
  const machine = startBound(QEMU, machineArguments(options, processors, socket));
  let complaints = "";
  machine.stderr?.setEncoding("utf8").on("data", (text: string) => {
    complaints += text;
  });
  return {
    process: machine,
    status: () => readFile(join(folder, "status")).trim(),
    console: () => complaints + readFile(join(folder, "console")),
    cleanUp: () => void signalChild(share, "SIGKILL"),
  };
}

export interface QemuKernel {
  /** The machine's name, for remembered answers. */
  readonly name: string;
  /** Of a kernel with virtiofs and what a node's network needs. */
  readonly metapackage: string;
  /** Whether some Debian release may lack it. */
  readonly mayBeAbsent: boolean;
  /** Number of processors. */
  readonly processors: number;
}

export function qemuMachine({ name, metapackage, mayBeAbsent, processors }: QemuKernel): Machine {
  return {
    guest,
    skip() {
      const reason = skipEveryMachine();
      if (reason !== false) return reason;
      if (!existsSync("/usr/bin/apt-get")) return "the virtual machine is made of Debian's packages: no apt-get here";
      if (virtiofsd() === undefined) return "no virtiofsd: install qemu-system-common (virtiofsd from Debian 13 on)";
      if (spawnSync(QEMU, ["--version"]).status !== 0) return `no ${QEMU}: install qemu-system-x86`;
      if (mayBeAbsent && dependencyOf(metapackage) === undefined) {
        return `the virtual machine is of a kernel that this system's package lists do not have: ${metapackage}`;
      }
      return false;
    },
    files: (cache) =>
      rememberedFiles(cache, name, (busybox) => {
        const image = dependencyOf(metapackage) ?? metapackage;
        const prepare = (root: string) => listDependencies(busybox, root);
        const root = ensurePackage(cache, { name: image, proof: /modules\.dep$/, prepare });
        const kernel = readdirSync(join(root, "boot")).find((file) => file.startsWith("vmlinuz"));
        if (kernel === undefined) throw new Error(`no kernel in ${root}/boot`);
        return { kernel: join(root, "boot", kernel), modules: modulesBelow(join(root, "lib/modules")) };
      }),
    start: (options) => start(options, processors),
  };
}
