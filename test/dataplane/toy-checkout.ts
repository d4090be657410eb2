/** A copy of the checkout with one mode more: its folder, and its name in the registry. */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** The mode's files, with `.txt` behind their names, because they belong to the copy and not to this program. */
const TOY = fileURLToPath(new URL("toy/", import.meta.url));
const COPIED = ["src", "bin", "testkit", "demo", "examples", "package.json", "tsconfig.json"];

export interface ToyCheckout {
  readonly folder: string;
  /** `bin/kube-proxy` of the copy. */
  readonly kubeProxy: string;
  /** The path of a file in the copy. */
  path(name: string): string;
  remove(): void;
}

/** Makes the copy in a temporary folder. The caller removes it. */
export async function toyCheckout(): Promise<ToyCheckout> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-toy-"));
  const path = (name: string) => join(folder, name);
  for (const name of COPIED) cpSync(join(ROOT, name), path(name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), path("node_modules"));
  mkdirSync(path("src/modes/toy"));
  for (const name of readdirSync(TOY)) {
    cpSync(join(TOY, name), path(`src/modes/toy/${name.replace(/\.txt$/, "")}`));
  }
  register(path("src/modes/registry.ts"));
  await bundle(folder);
  return { folder, kubeProxy: path("bin/kube-proxy"), path, remove: () => rmSync(folder, { recursive: true }) };
}

/** For `bin/kube-proxy`: from the sources each start takes three times the processor time. */
async function bundle(folder: string): Promise<void> {
  await build({
    absWorkingDir: folder,
    entryPoints: { main: "src/tools/cli/main.ts" },
    outdir: join(folder, "dist/bundle"),
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    external: ["koffi"],
    // For packages of CommonJS.
    banner: {
      js: 'import { createRequire as requireFor } from "node:module";\nconst require = requireFor(import.meta.url);',
    },
    alias: { yaml: join(folder, "node_modules/yaml/browser/dist/index.js") },
    logLevel: "warning",
  });
}

/** One import, one name in the list. */
function register(file: string): void {
  const before = readFileSync(file, "utf8");
  const after = before
    .replace(/^import .* from "\.\/iptables\/index\.ts";$/m, (line) => `${line}\nimport { toy } from "./toy/index.ts";`)
    .replace(/^(export const MODES = \[.*)(\] as const;)$/m, "$1, toy$2");
  if (after.split("\n").length !== before.split("\n").length + 1 || !after.includes(", toy]")) {
    throw new Error(`${file} has another shape: tell this test how a mode is registered`);
  }
  writeFileSync(file, after);
}
