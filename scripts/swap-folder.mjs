/** Makes a folder beside the one that it replaces, so that who reads there meanwhile finds the old or the new one whole. */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";

/** An empty folder beside another, for this process alone. */
export function emptyBeside(folder) {
  const beside = `${folder}.${process.pid}`;
  rmSync(beside, { recursive: true, force: true });
  mkdirSync(beside, { recursive: true });
  return beside;
}

/** Puts what was made beside a folder in its place. */
export function swap(beside, folder) {
  const old = `${beside}.old`;
  if (existsSync(folder)) renameSync(folder, old);
  renameSync(beside, folder);
  rmSync(old, { recursive: true, force: true });
}
