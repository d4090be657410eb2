/** `--dump FOLDER`: what was unpacked of an archive of `kube-proxy sysdump`: files that hold rules, objects, node and configuration. */
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { API_VERSION, KIND } from "../config/config.ts";
import { isObject } from "../kernel/nftables/json.ts";
import { UsageError } from "./exit.ts";
import type { FoundConfiguration } from "./objects-input.ts";

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

/** What a sysdump says of its node beside the rules. */
export interface SysdumpContext {
  /** A folder of manifests. */
  readonly objects: string;
  readonly node: string | undefined;
  readonly configuration: FoundConfiguration | undefined;
}

/** @param paths of which the first sysdump counts. @returns undefined where none is one. */
export async function contextOf(paths: readonly string[]): Promise<SysdumpContext | undefined> {
  for (const path of paths) {
    const objects = join(path, "objects");
    if (path === "-" || !(await isFolder(objects))) continue;
    const [index, status, file, configz] = await Promise.all(
      ["index.json", "daemon/status.json", "config/kube-proxy.json", "daemon/configz.json"].map((name) =>
        jsonIn(join(path, name)),
      ),
    );
    const served = isObject(configz) ? Object.values(configz).find(isObject) : undefined;
    const mode = isObject(status) && typeof status.mode === "string" ? { mode: status.mode } : undefined;
    const found = file ?? served ?? mode;
    const node = [status, index].flatMap((one) => (isObject(one) && typeof one.node === "string" ? one.node : []))[0];
    const content = isObject(found) ? JSON.stringify({ apiVersion: API_VERSION, kind: KIND, ...found }) : undefined;
    return { objects, node, configuration: content === undefined ? undefined : { content, where: "the sysdump" } };
  }
  return undefined;
}

async function jsonIn(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    return undefined;
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}
