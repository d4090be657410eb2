/** The object files of the eBPF programs that are in the repository are what clang makes of their source. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runCommand } from "../../testkit/net/run-command.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";

const CHECKOUT = fileURLToPath(new URL("../../", import.meta.url));
/** Other packages may be ahead. */
const INSTALL_LIMIT_MS = 400_000;

const isMissing = () => skipWithoutTool("clang-19", "clang-19");
if (isMissing() !== false) {
  const tools = join(CHECKOUT, "scripts/system-tools.mjs");
  await runCommand([process.execPath, tools, "bytecode"], { timeoutMs: INSTALL_LIMIT_MS });
}

test("the object files are what the source makes", { skip: isMissing() }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bytecode-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const compiler = join(CHECKOUT, "scripts/bpf.mjs");
  const { stdout } = await runCommand([process.execPath, compiler, folder], { timeoutMs: 60_000 });
  const paths = stdout.trim().split("\n");
  assert.equal(paths.length, 4);
  for (const path of paths) {
    const [kept, made] = [CHECKOUT, folder].map((root) => readFileSync(join(root, path)).toString("base64"));
    assert.ok(kept === made, `${path} is not what clang makes of the source: node scripts/bpf.mjs`);
  }
});
