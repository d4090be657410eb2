/** What a start loads: an agent that runs on every node should not carry what only commands or other modes need. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { faultNode, served, startDaemon } from "../kernel/faults/fault-node.ts";

const SRC = new URL("../../src/", import.meta.url).href;
const MAIN = fileURLToPath(new URL("tools/cli/main.ts", SRC));

/** A folder for V8's coverage: it names every file that a process has loaded. */
function recording(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "kpts-loaded-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const files = (): string[] => {
    const urls = readdirSync(folder).flatMap((name) => {
      const { result } = JSON.parse(readFileSync(join(folder, name), "utf8")) as { result: { url: string }[] };
      return result.map(({ url }) => url);
    });
    return [...new Set(urls)].filter((url) => url.startsWith(SRC)).map((url) => url.slice(SRC.length));
  };
  return { env: { ...process.env, NODE_V8_COVERAGE: folder }, files };
}

const linesOf = (files: readonly string[]): number =>
  files.reduce((sum, file) => sum + readFileSync(new URL(file, SRC), "utf8").split("\n").length - 1, 0);

describe("loaded code", { concurrency: 2 }, () => {
  test("--version loads nothing of the kernel", (t) => {
    const { env, files } = recording(t);
    execFileSync(process.execPath, [MAIN, "--version"], { env, stdio: "ignore" });
    assert.deepEqual(
      files().filter((file) => file.startsWith("kernel/")),
      [],
    );
  });

  test("an agent in nftables mode loads at most 37,000 lines", { skip: kernelSkip, timeout: 90_000 }, async (t) => {
    const { env, files } = recording(t);
    const node = await faultNode(t);
    const daemon = await startDaemon(t, node, {
      objects: served("web", 1),
      config: { mode: "nftables" },
      program: MAIN,
      wrapper: [process.execPath],
      env,
    });
    await daemon.stop("SIGTERM");
    const loaded = linesOf(files());
    assert.ok(loaded <= 37_000, `${loaded} lines`);
  });
});
