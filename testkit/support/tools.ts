/** Programs that only tests need and that a machine may lack. */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/**
 * For the `skip` option of a test: why it cannot run here, or `false`. In `.ci/run`, a test skipped for this reason
 * counts as failed (scripts/run-tests.mjs).
 */
export function skipWithoutTool(tool: string, debianPackage: string): string | false {
  return isOnPath(tool) ? false : `no program ${tool} on PATH: install the package ${debianPackage}`;
}

/** Whether a program of this name is in a folder of PATH. */
export function isOnPath(tool: string): boolean {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => isExecutable(join(folder, tool)));
}

/** Whether this process may run the file. */
export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
