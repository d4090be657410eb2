/** Debian packages that a virtual machine boots: downloaded once, found again without asking apt. */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { ensurePackage } from "./debian-package.ts";
import type { MachineFiles } from "./machine.ts";

/** What the package lists say changes with them only, and asking takes seconds. */
function listsStamp(): number {
  return statSync("/var/lib/apt/lists", { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

function remembered(memory: string): MachineFiles | undefined {
  try {
    const { stamp, ...files } = JSON.parse(readFileSync(memory, "utf8")) as MachineFiles & { stamp: number };
    const needed = [files.kernel, files.busybox, join(files.modules, "modules.dep")];
    return stamp === listsStamp() && needed.every((path) => existsSync(path)) ? files : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The answer of the last time if it still holds; else what `find` says, which may download.
 * @param name of the machine, for the file that remembers.
 * @throws Error that says what could not be had.
 */
export function rememberedFiles(
  cache: string,
  name: string,
  find: (busybox: string) => Omit<MachineFiles, "busybox">,
): MachineFiles {
  const memory = join(cache, `${name}.json`);
  const known = remembered(memory);
  if (known !== undefined) return known;
  const busybox = join(ensurePackage(cache, { name: "busybox-static", proof: /bin\/busybox$/ }), "bin/busybox");
  const files = { ...find(busybox), busybox };
  writeFileSync(memory, JSON.stringify({ ...files, stamp: listsStamp() }));
  return files;
}

/** The folder of the only kernel version in a package. */
export function modulesBelow(folder: string): string {
  const [version] = readdirSync(folder);
  if (version === undefined) throw new Error(`no kernel modules in ${folder}`);
  return join(folder, version);
}

/** Debian's kernel packages come without the list of what needs what: an installation makes it. */
export function listDependencies(busybox: string, root: string): void {
  // Newer releases have it below usr only.
  if (!existsSync(join(root, "lib"))) symlinkSync("usr/lib", join(root, "lib"));
  const version = basename(modulesBelow(join(root, "lib/modules")));
  const { status, stderr } = spawnSync(busybox, ["depmod", "-b", root, version], { encoding: "utf8" });
  if (status !== 0) throw new Error(`depmod: ${stderr}`);
}
