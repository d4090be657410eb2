/** Programs that only tests need, which a machine may lack. */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/**
 * For the `skip` option of a test: why it cannot run here, or `false`. In `.ci/run` a test that is skipped for this reason has
 * failed (scripts/run-tests.mjs).
 */
export function skipWithoutTool(tool: string, debianPackage: string): string | false {
  const isThere = (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, tool), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return isThere ? false : `no program ${tool} on PATH: install the package ${debianPackage}`;
}
