/** `--dump FOLDER`: what `kube-proxy sysdump` has unpacked, as the files that hold rules. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { UsageError } from "./exit.ts";

/** Where an unpacked archive has its rules. */
const RULES = "rules";

/**
 * @param leftOut names of files that another form of the same rules is in.
 * @returns the paths, in place of a folder those of the files in its `rules`, or in itself. @throws UsageError for an empty folder
 */
export async function dumpFiles(
  paths: readonly string[],
  leftOut: (name: string) => boolean,
): Promise<readonly { readonly path: string; readonly isOfFolder: boolean }[]> {
  const files = [];
  for (const path of paths) {
    if (path === "-" || !(await isFolder(path))) {
      files.push({ path, isOfFolder: false });
      continue;
    }
    const rules = join(path, RULES);
    const folder = (await isFolder(rules)) ? rules : path;
    const entries = await readdir(folder, { withFileTypes: true });
    const names = entries.filter((entry) => entry.isFile() && !leftOut(entry.name)).map(({ name }) => name);
    if (names.length === 0) throw new UsageError(`there is no dump in the folder ${folder}`);
    files.push(...names.sort().map((name) => ({ path: join(folder, name), isOfFolder: true })));
  }
  return files;
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}
