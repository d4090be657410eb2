/** Replaces built files that a program may be reading: each appears whole, and the previous build's stay for programs that run from it. */
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** For this long, a running command may load another module of its own build. */
const KEPT_MS = 3_600_000;

export function placeFile(path, content) {
  mkdirSync(dirname(path), { recursive: true });
  const beside = `${path}.${process.pid}`;
  writeFileSync(beside, content);
  renameSync(beside, path);
}

/** @param files content by name; a file comes after those it names. */
export function placeFiles(folder, files) {
  for (const [name, content] of files) placeFile(join(folder, name), content);
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (!files.has(name) && Date.now() - statSync(path).mtimeMs > KEPT_MS) rmSync(path, { force: true });
  }
}
