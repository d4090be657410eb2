/** Debian packages that a virtual machine boots: downloaded once, found again without asking apt. */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { ensurePackage } from "./debian-package.ts";
import type { MachineFiles } from "./machine.ts";

/** Answers depend only on the package lists, and asking takes seconds. */
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
 * The previous answer if it still holds; else that of `find`, which may download.
 * @param name the machine's, for the file with the answer.
 * @throws Error that says what is unavailable.
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

/** Debian's kernel packages come without the module dependencies: installing one generates them. */
export function listDependencies(busybox: string, root: string): void {
  // Newer releases have it only below usr.
  if (!existsSync(join(root, "lib"))) symlinkSync("usr/lib", join(root, "lib"));
  const version = basename(modulesBelow(join(root, "lib/modules")));
  const { status, stderr } = spawnSync(busybox, ["depmod", "-b", root, version], { encoding: "utf8" });
  if (status !== 0) throw new Error(`depmod: ${stderr}`);
}
