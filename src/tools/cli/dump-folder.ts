/** `--dump`: an archive of `kube-proxy sysdump`, or the folder of one, with files for rules, objects, node and configuration. */
import { rmSync } from "node:fs";
import { mkdir, mkdtemp, open, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { API_VERSION, KIND } from "../../contract/config/config.ts";
import type { Inventory } from "../../contract/inspect/dumps/inventory.ts";
import { isObject, listOf, textOf } from "../../kernel/nftables/json.ts";
import { jsonIn } from "../../logging/attempt.ts";
import { messageOf } from "../../logging/message-of.ts";
import { type Dump, DumpError } from "../../trace/dump/recognise.ts";
import { inventoryOf, merged } from "../explain/inventories.ts";
import { readBounded, readInputText, refusalText } from "./bounded-input.ts";
import { decidedIn, type FoundConfiguration, type ObjectsChoice } from "./objects-input.ts";
import { EXIT_FAILURE, UsageError } from "./output.ts";
import { BESIDE_RULES, tarFiles } from "./sysdump/archive.ts";

const RULES = "rules";
const OBJECTS = "objects";

/**
 * @param leftOut whether a file of this name is left out, because another file has the same rules in another form.
 * @returns the paths; a folder is replaced by the files in its `rules` folder, or in itself. @throws UsageError for an empty folder
 */
export async function dumpFiles(
  paths: readonly string[],
  leftOut: (name: string) => boolean,
): Promise<readonly DumpFile[]> {
  const files: DumpFile[] = [];
  for (const given of paths) {
    const path = await unpacked(given);
    if (!(await isFolder(path))) {
      files.push({ path, name: path === "-" ? "standard input" : path, isOfFolder: false });
      continue;
    }
    const dump = await sysdumpIn(path);
    const rules = join(dump, RULES);
    const folder = (await isFolder(rules)) ? rules : dump;
    const entries = await readdir(folder, { withFileTypes: true });
    const names = entries.filter((entry) => entry.isFile() && !leftOut(entry.name)).map(({ name }) => name);
    // The folder of an unpacked archive is nothing that the user knows.
    const said = folder.replace(path, given);
    if (names.length === 0) throw new UsageError(`there is no dump in the folder ${said}`);
    files.push(...names.sort().map((name) => ({ path: join(folder, name), name: join(said, name), isOfFolder: true })));
  }
  return files;
}

/** @throws UsageError for a file that cannot be read */
export async function dumpText(path: string, name: string, input: NodeJS.ReadableStream): Promise<string> {
  return await readInputText(path, input).catch((error: unknown) => {
    throw new UsageError(`cannot read the dump in ${name}: ${refusalText(error)}`);
  });
}

export interface DumpFile {
  readonly path: string;
  /** For messages. */
  readonly name: string;
  readonly isOfFolder: boolean;
}

/** Folders of archives, by path. */
const unpackedArchives = new Map<string, string>();
/** A sysdump of 10,000 Services has 60 MB. */
const MOST_UNPACKED_BYTES = 512 * 2 ** 20;

/** The folder that an archive is unpacked to until this process ends; any other path as it is. @throws UsageError */
async function unpacked(path: string): Promise<string> {
  const known = unpackedArchives.get(path);
  const packing = known === undefined && path !== "-" ? await packingOf(path) : undefined;
  if (packing === undefined) return known ?? path;
  const folder = await mkdtemp(join(tmpdir(), "kube-proxy-dump-"));
  removeAtEnd(folder);
  try {
    const bytes = await readBounded(path);
    const archive = packing === "a tar archive" ? bytes : gunzipSync(bytes, { maxOutputLength: MOST_UNPACKED_BYTES });
    for (const { name, content } of tarFiles(archive)) {
      // A name may lead out of the folder.
      const file = join(folder, join("/", name));
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, content);
    }
  } catch (error) {
    throw new UsageError(`cannot read ${path}: it is ${packing}, but is no whole sysdump (${messageOf(error)})`);
  }
  unpackedArchives.set(path, folder);
  return folder;
}

const removedAtEnd: string[] = [];

function removeAtEnd(folder: string): void {
  if (removedAtEnd.push(folder) > 1) return;
  process.once("exit", () => {
    for (const one of removedAtEnd) rmSync(one, { recursive: true, force: true });
  });
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(EXIT_FAILURE));
}

/** How an archive is packed: some browsers take the compression away. @returns undefined for other files */
async function packingOf(path: string): Promise<"compressed" | "a tar archive" | undefined> {
  // Reading from a pipe would take its beginning away.
  const found = await stat(path).catch((error: unknown) => {
    throw new UsageError(`cannot read the dump in ${path}: ${refusalText(error)}`);
  });
  if (!found.isFile()) return undefined;
  await using file = await open(path, "r");
  const { buffer } = await file.read(Buffer.alloc(262), 0, 262, 0);
  if (buffer.readUInt16BE() === 0x1f8b) return "compressed";
  return buffer.toString("latin1", 257) === "ustar" ? "a tar archive" : undefined;
}

/** What a sysdump says about its node besides the rules. */
export interface SysdumpContext {
  /** Where its objects are, with what its daemon has decided, if that is known. */
  readonly objects: Pick<ObjectsChoice, "filename" | "decided">;
  readonly node: string | undefined;
  readonly configuration: FoundConfiguration | undefined;
}

/** The folders of what was given, or of the sysdumps in it. @throws UsageError */
async function* foldersOf(paths: readonly string[]): AsyncGenerator<string, void> {
  for (const given of paths) yield await sysdumpIn(await unpacked(given));
}

/** A part of a sysdump; empty if it has none. */
async function partOf(folder: string, name: string): Promise<string> {
  return await readFile(join(folder, name), "utf8").catch(() => "");
}

/** Rules that a sysdump lacks because a tool failed, and that nothing else in it prints, in words. */
export async function rulesNotRead(paths: readonly string[]): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const folder of foldersOf(paths)) {
    const index = jsonIn(await partOf(folder, "index.json"));
    for (const part of isObject(index) ? listOf(index.notRead) : [])
      if (isObject(part) && /^rules\/(?:nft\.json|ip6?tables-legacy-save\.txt)$/.test(String(part.name)))
        found.push(`${part.name} is not in the sysdump (${part.why})`);
  }
  return found;
}

/** What a sysdump has beside the rules of its node. @param paths the first sysdump that has it counts. */
export async function besideRulesOf(paths: readonly string[]): Promise<string | undefined> {
  for await (const folder of foldersOf(paths)) {
    const text = await partOf(folder, BESIDE_RULES);
    if (text !== "") return text;
  }
  return undefined;
}

/** @param paths the first sysdump among them counts. @returns undefined if there is none. */
export async function contextOf(paths: readonly string[]): Promise<SysdumpContext | undefined> {
  for await (const path of foldersOf(paths)) {
    const objects = join(path, OBJECTS);
    if (path === "-" || !(await isFolder(objects))) continue;
    const names = ["index.json", "daemon/status.json", "config/kube-proxy.json", "daemon/configz.json"];
    const parts = await Promise.all(names.map((name) => partOf(path, name)));
    const [index, status, file, configz] = parts.map(jsonIn);
    const served = isObject(configz) ? Object.values(configz).find(isObject) : undefined;
    const mode = isObject(status) && typeof status.mode === "string" ? { mode: status.mode } : undefined;
    const found = file ?? served ?? mode;
    const node = [status, index].flatMap((one) => (isObject(one) ? (textOf(one.node) ?? []) : []))[0];
    const content = isObject(found) ? JSON.stringify({ apiVersion: API_VERSION, kind: KIND, ...found }) : undefined;
    const configuration = content === undefined ? undefined : { content, where: "the sysdump" };
    return { objects: { filename: [objects], decided: decidedIn(status) }, node, configuration };
  }
  return undefined;
}

/** The folder of a sysdump: `path` itself, or the only one in it, as `tar -C` leaves it. @returns `path` if there is no such folder */
async function sysdumpIn(path: string): Promise<string> {
  if (path === "-" || !(await isFolder(path)) || (await isSysdump(path))) return path;
  const found: string[] = [];
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const inner = join(path, entry.name);
    if (entry.isDirectory() && (await isSysdump(inner))) found.push(inner);
  }
  const [only = path] = found;
  return found.length === 1 ? only : path;
}

async function isSysdump(path: string): Promise<boolean> {
  return (await isFolder(join(path, RULES))) || (await isFolder(join(path, OBJECTS)));
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() === true;
}

/** What the dumps of a file list. @param name of the file, for errors. @throws UsageError */
export function inventoryIn(dumps: readonly Dump[], name: string, use: Parameters<typeof inventoryOf>[1]): Inventory {
  try {
    const parts: Inventory[] = [];
    for (const dump of dumps) {
      const inventory = inventoryOf(dump, use);
      const place = [...inventory.places].find((one) => parts.some(({ places }) => places.has(one)));
      if (place !== undefined) throw new DumpError(`it has the table ${place} twice: give what one tool prints`);
      parts.push(inventory);
    }
    const [only] = parts;
    return only !== undefined && parts.length === 1 ? only : merged("iptables-save", parts);
  } catch (error) {
    if (error instanceof DumpError) throw new UsageError(`cannot read the dump in ${name}: ${error.message}`);
    throw error;
  }
}
