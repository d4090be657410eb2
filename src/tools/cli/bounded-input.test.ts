import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { runCommand } from "../../../test/cli/run-command.ts";
import { readBounded, readInputText } from "./bounded-input.ts";
import { diff } from "./diff.ts";
import { render } from "./render.ts";
import { trace } from "./trace.ts";

test("a file and standard input are read whole, in portions of any size", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "input-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "a");
  const text = "ä€😀".repeat(50_000);
  writeFileSync(file, text);
  assert.equal(await readInputText(file, Readable.from([])), text);
  const bytes = Buffer.from(text);
  assert.equal(await readInputText("-", Readable.from([bytes.subarray(0, 7), bytes.subarray(7)])), text);
  await assert.rejects(readBounded(join(folder, "nothing")), { code: "ENOENT" });
  await assert.rejects(readBounded(folder), { code: "EISDIR" });
  await assert.rejects(readBounded(file, 2 ** 18), /it is larger than 0\.25 MiB/);
});

for (const [what, run] of [
  ["trace --dump", () => runCommand(trace, ["--from", "10.180.0.5", "--to", "10.96.0.1:80", "--dump", "/dev/zero"])],
  ["diff --dump", () => runCommand(diff, ["-f", "examples", "--node", "node-a", "--dump", "/dev/zero"])],
  ["render -f", () => runCommand(render, ["-f", "/dev/zero"])],
  ["render --config", () => runCommand(render, ["-f", "examples", "--config", "/dev/zero"])],
] as const) {
  test(`${what} of a device that never ends is an error`, { skip: process.platform === "win32" }, async () => {
    const before = process.memoryUsage.rss();
    const said = await run().then(({ err }) => err, String);
    assert.match(said, /\/dev\/zero.*it is larger than 128 MiB/);
    const grown = (process.memoryUsage.rss() - before) / 2 ** 20;
    assert.ok(grown < 400, `${Math.round(grown)} MiB`);
  });
}
