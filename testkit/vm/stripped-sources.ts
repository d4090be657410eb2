/**
 * The checkout's TypeScript as JavaScript, for the virtual machine. Node.js strips types with a WebAssembly program, which
 * on an emulated processor takes most of a short program's time and crashes it now and then (SIGSEGV, 1 in 40 starts).
 */
import { globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

/** What may be imported inside. */
const SOURCES = "{src,test,testkit,demo,bench}/**/*.ts";

/** Writes every source below `root` without its types to the same path below `folder`. Takes about a second. */
export function writeStrippedSources(root: string, folder: string): void {
  for (const path of globSync(SOURCES, { cwd: root })) {
    const target = join(folder, path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, strippedSource(join(root, path)));
  }
}

/** The text of a source without its types, byte for byte as Node.js itself has it: so the host's compiled code is valid inside, too. */
export function strippedSource(file: string): string {
  return stripTypeScriptTypes(readFileSync(file, "utf8"), { sourceUrl: pathToFileURL(file).href });
}
