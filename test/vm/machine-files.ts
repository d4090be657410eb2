/** What the virtual machine boots: a Debian kernel with its modules, and an initial file system made for one job. */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type CpioEntry, cpioArchive, FOLDER, PROGRAM } from "./cpio.ts";
import { dependencyOf, ensurePackage } from "./debian-package.ts";

/** The small flavour of Debian's kernel: it has what a node's network needs, and virtiofs. */
const KERNEL = "linux-image-cloud-amd64";
/** Whatever is needed to see the host's files and to talk to the host; what is missing here is built in. */
const BOOT_MODULES = ["virtio_pci", "virtio_console", "virtiofs", "overlay"];

/** In the cache: the answer of the last time. */
const MEMORY = "machine.json";

export interface MachineFiles {
  readonly kernel: string;
  readonly busybox: string;
  /** The folder with `modules.dep`. */
  readonly modules: string;
}

/** What to run, and where the guest finds the checkout; both with the host's paths. */
export interface GuestJob {
  readonly checkout: string;
  /** A shell script. */
  readonly command: string;
}

function modulesOf(root: string): string {
  // Newer releases have it below usr only.
  if (!existsSync(join(root, "lib"))) symlinkSync("usr/lib", join(root, "lib"));
  const [version] = readdirSync(join(root, "lib/modules"));
  if (version === undefined) throw new Error(`no kernel modules in ${root}`);
  return join(root, "lib/modules", version);
}

/** What the package lists say changes with them only, and asking takes seconds. */
function listsStamp(): number {
  return statSync("/var/lib/apt/lists", { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

function remembered(cache: string): MachineFiles | undefined {
  try {
    const { stamp, ...files } = JSON.parse(readFileSync(join(cache, MEMORY), "utf8")) as MachineFiles & {
      stamp: number;
    };
    const needed = [files.kernel, files.busybox, join(files.modules, "modules.dep")];
    return stamp === listsStamp() && needed.every((path) => existsSync(path)) ? files : undefined;
  } catch {
    return undefined;
  }
}

/** Downloads what is not in the cache yet. @throws Error that says what could not be had. */
export function ensureMachineFiles(cache: string): MachineFiles {
  const known = remembered(cache);
  if (known !== undefined) return known;
  const busybox = join(ensurePackage(cache, { name: "busybox-static", proof: /bin\/busybox$/ }), "bin/busybox");
  const prepare = (root: string) => {
    const version = basename(modulesOf(root));
    const { status, stderr } = spawnSync(busybox, ["depmod", "-b", root, version], { encoding: "utf8" });
    if (status !== 0) throw new Error(`depmod: ${stderr}`);
  };
  const name = dependencyOf(KERNEL) ?? KERNEL;
  const root = ensurePackage(cache, { name, proof: /modules\.dep$/, prepare });
  const kernel = readdirSync(join(root, "boot")).find((file) => file.startsWith("vmlinuz"));
  if (kernel === undefined) throw new Error(`no kernel in ${root}/boot`);
  const files = { kernel: join(root, "boot", kernel), busybox, modules: modulesOf(root) };
  writeFileSync(join(cache, MEMORY), JSON.stringify({ ...files, stamp: listsStamp() }));
  return files;
}

const stem = (path: string) => basename(path).replace(/\.ko(\..*)?$/, "");

/** The boot modules and what they need, as paths below the modules' folder, in the order of loading. */
function bootModules(modules: string): string[] {
  const lines = readFileSync(join(modules, "modules.dep"), "utf8").split("\n");
  const wanted = BOOT_MODULES.flatMap((name) => {
    const line = lines.find((candidate) => stem(candidate.split(":")[0] ?? "") === name);
    const [file = "", ...needed] = (line ?? "").split(/:? +|:$/).filter((word) => word !== "");
    // modules.dep names a module first and its deepest dependency last.
    return file === "" ? [] : [...needed.reverse(), file];
  });
  return [...new Set(wanted)];
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A line for a POSIX shell that runs these words. */
export function shellLine(words: readonly string[]): string {
  return words.map(quoted).join(" ");
}

const guestFile = (name: string) => readFileSync(new URL(`guest/${name}`, import.meta.url));

/** The first root file system, with the job in it. */
export function initialFileSystem(files: MachineFiles, job: GuestJob): Buffer {
  const modules = bootModules(files.modules);
  const settings = [
    `CHECKOUT=${quoted(job.checkout)}`,
    `MODULES=${quoted(files.modules)}`,
    `BOOT_MODULES=${quoted(modules.map((path) => basename(path)).join(" "))}`,
  ];
  const program = (path: string, content: Uint8Array): CpioEntry => ({ path, mode: PROGRAM, content });
  return cpioArchive([
    ...["bin", "dev", "host", "job", "layer", "modules", "proc", "root"].map((path) => ({ path, mode: FOLDER })),
    program("bin/busybox", readFileSync(files.busybox)),
    program("init", guestFile("init")),
    program("job/main", guestFile("main")),
    program("job/settings", Buffer.from(`${settings.join("\n")}\n`)),
    program("job/command", Buffer.from(`${job.command}\n`)),
    ...modules.map((path) => program(`modules/${basename(path)}`, readFileSync(join(files.modules, path)))),
  ]);
}
