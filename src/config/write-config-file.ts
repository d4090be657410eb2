/** `--write-config-to`. Reference server.md §2.4. */
import { writeFile } from "node:fs/promises";
import type { DraftConfig } from "./config.ts";
import { encodeYaml } from "./v1alpha1-encode.ts";

/**
 * Writes a configuration as v1alpha1 YAML, over what the file held, with the mode that the umask leaves of 0666.
 *
 * @throws the file system's error when the file cannot be written.
 */
export async function writeConfigFile(path: string, config: DraftConfig): Promise<void> {
  await writeFile(path, await encodeYaml(config), { mode: 0o666 });
}
