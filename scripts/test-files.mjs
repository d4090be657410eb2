/** Which test files there are, and which of them a person means. */
import { existsSync, globSync } from "node:fs";
import { join, resolve, sep } from "node:path";

const PATTERNS = ["{src,test,testkit,demo}/**/*.test.ts", "bench/*.test.ts"];

/** Absolute paths of all test files. */
export const allTestFiles = (root) => globSync(PATTERNS, { cwd: root }).map((file) => join(root, file));

/**
 * What is meant by a path: below the checkout, or below the folder where `npm` was started. A source stands for the test beside it.
 */
export function meant(root, path) {
  const places = [root, process.env.INIT_CWD ?? root].map((folder) => resolve(folder, path));
  const place = places.find(existsSync) ?? places[0];
  const beside = place.replace(/(?<!\.test)\.ts$/, ".test.ts");
  return existsSync(beside) ? beside : place;
}

/** The test files below these places, which are absolute; a file of its own is below itself. */
export const filesBelow = (files, places) =>
  files.filter((file) => places.some((place) => file === place || file.startsWith(place + sep)));
