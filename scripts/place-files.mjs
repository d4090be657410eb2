/** Puts built files where a program may be reading them: each comes whole, and those of the build before stay for who runs from it. */
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** A command that runs may load another module of its own build so long. */
const KEPT_MS = 3_600_000;

export function placeFile(path, content) {
  mkdirSync(dirname(path), { recursive: true });
  const beside = `${path}.${process.pid}`;
  writeFileSync(beside, content);
  renameSync(beside, path);
}

/** @param files content by name; what names others comes after them. */
export function placeFiles(folder, files) {
  for (const [name, content] of files) placeFile(join(folder, name), content);
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (!files.has(name) && Date.now() - statSync(path).mtimeMs > KEPT_MS) rmSync(path, { force: true });
  }
}
