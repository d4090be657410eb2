/** Which unit-test files share a process, and the files that run them in node:test. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { needsOwnProcess } from "./own-process.ts";
import type { BatchOptions } from "./run-batch.ts";

/** Enough to load most modules once, and few enough that a batch is no long part of the whole. */
const MOST_FILES = 30;

export interface Batch {
  /** What node:test runs. */
  readonly path: string;
  /** The test files in it, relative to the checkout. */
  readonly files: readonly string[];
}

/**
 * Separates files that may share a process from those that may not.
 *
 * @param root the checkout. @param files relative to it.
 */
export function partition(
  root: string,
  files: readonly string[],
): { readonly shared: readonly string[]; readonly alone: readonly string[] } {
  const isAlone = new Map(files.map((file) => [file, needsOwnProcess(readFileSync(join(root, file), "utf8"))]));
  return { shared: files.filter((file) => !isAlone.get(file)), alone: files.filter((file) => isAlone.get(file)) };
}

/** Cuts a list into as few parts of nearly equal length as the limit allows. Neighbours stay together: they load the same modules. */
export function portions<T>(items: readonly T[], most = MOST_FILES): T[][] {
  const count = Math.ceil(items.length / most);
  const edge = (index: number): number => Math.round((index * items.length) / count);
  return Array.from({ length: count }, (_, index) => items.slice(edge(index), edge(index + 1)));
}

/**
 * Writes a file for each batch.
 *
 * @param root the checkout. @param folder where they go, relative to it; must not exist. @param files also relative to it.
 */
export function makeBatches(
  root: string,
  folder: string,
  files: readonly string[],
  options: BatchOptions = {},
): Batch[] {
  mkdirSync(join(root, folder), { recursive: true });
  const module = new URL("run-batch.ts", import.meta.url).href;
  return portions(files).map((part, index) => {
    const path = join(root, folder, `${index + 1}.mjs`);
    const words = [root, part, options].map((value) => JSON.stringify(value));
    writeFileSync(path, `import { runBatch } from "${module}";\nawait runBatch(${words.join(", ")});\n`);
    return { path, files: part };
  });
}
