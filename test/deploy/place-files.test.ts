/** What the build writes is whole for who reads it meanwhile, and what ran before a build finds its modules after it. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const MODULE = pathToFileURL(join(import.meta.dirname, "../../scripts/place-files.mjs")).href;

/** Another process that places `main.js` and one more file as often as asked. */
function builder(t: TestContext, folder: string, times: number) {
  const script = `
    import { placeFiles } from ${JSON.stringify(MODULE)};
    for (let build = 1; build <= ${times}; build += 1) {
      const text = String(build).repeat(100_000);
      placeFiles(${JSON.stringify(folder)}, new Map([["chunk-" + build + ".js", text], ["main.js", text]]));
    }`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], { stdio: "inherit" });
  t.after(() => child.kill("SIGKILL"));
  return child;
}

test("files are replaced whole, and those of an earlier build stay for an hour", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-place-"));
  t.after(() => rmSync(folder, { recursive: true }));
  await once(builder(t, folder, 1), "exit");
  const child = builder(t, folder, 9);
  const ended = once(child, "exit");
  while (child.exitCode === null) {
    const text = readFileSync(join(folder, "main.js"), "utf8");
    const [build = ""] = text;
    assert.equal(text, build.repeat(100_000));
    // What the file names is there.
    assert.ok(existsSync(join(folder, `chunk-${build}.js`)));
    await turn();
  }
  assert.deepEqual(await ended, [0, null]);
  assert.ok(existsSync(join(folder, "chunk-1.js")));
  const longAgo = Date.now() / 1_000 - 7_200;
  utimesSync(join(folder, "chunk-9.js"), longAgo, longAgo);
  await once(builder(t, folder, 1), "exit");
  assert.deepEqual([existsSync(join(folder, "chunk-8.js")), existsSync(join(folder, "chunk-9.js"))], [true, false]);
});
