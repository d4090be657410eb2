/**
 * The checkout's TypeScript as JavaScript, for the virtual machine. Node.js removes types with a WebAssembly program, and in
 * an emulated processor that takes most of a short program's time and crashes it now and then (SIGSEGV, 1 in 40 starts).
 */
import { globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";

/** What may be imported inside. */
const SOURCES = "{src,test,testkit,demo,bench}/**/*.ts";

/** Writes every source below `root` without its types to the same path below `folder`. Takes about a second. */
export function writeStrippedSources(root: string, folder: string): void {
  for (const path of globSync(SOURCES, { cwd: root })) {
    const target = join(folder, path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, stripTypeScriptTypes(readFileSync(join(root, path), "utf8")));
  }
}
