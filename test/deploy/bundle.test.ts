/** The bundle of the program, where a build has made one. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { readAssets } from "../../src/page/assets.ts";
import { runCommand } from "../../testkit/net/run-command.ts";

const CHECKOUT = fileURLToPath(new URL("../../", import.meta.url));
const MAIN = join(CHECKOUT, "dist/bundle/main.js");
const SOURCE = join(CHECKOUT, "src/cli/proxy-command.ts");
const isCurrent = existsSync(MAIN) && statSync(MAIN).mtimeMs > statSync(SOURCE).mtimeMs;

describe("the bundled program", { skip: isCurrent ? false : "not built: npm run build" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bundle-"));
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("writes to the log which line of the sources wrote", async () => {
    const args = ["--write-config-to", join(folder, "config.yaml")];
    const { stderr } = await runCommand([process.execPath, MAIN, ...args], { timeoutMs: 60_000 });
    const line = /proxy-command\.ts:(\d+)\] "Wrote configuration"/.exec(stderr)?.[1];
    assert.match(readFileSync(SOURCE, "utf8").split("\n")[Number(line) - 1] ?? "", /log\.info\("Wrote configuration"/);
  });

  test("finds the thread that reads manifests, and its packages", async () => {
    const manifest = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "shop", name: "web" },
      spec: { clusterIP: "10.96.0.10", ports: [{ port: 80 }] },
    };
    writeFileSync(join(folder, "service.json"), JSON.stringify(manifest));
    const args = ["render", "--mode", "nftables", "-f", join(folder, "service.json"), "--hostname-override", "node-a"];
    const { stdout } = await runCommand([process.execPath, MAIN, ...args], { timeoutMs: 60_000 });
    assert.match(stdout, /shop\/web/);
  });

  test("has the files of the page beside it, without types", async () => {
    const [built, sources] = await Promise.all([readAssets(join(CHECKOUT, "dist/page/client/")), readAssets()]);
    assert.deepEqual([...built.keys()].sort(), [...sources.keys()].sort());
    for (const [path, { type, bytes }] of sources) {
      assert.deepEqual([path, built.get(path)?.type, String(built.get(path)?.bytes)], [path, type, String(bytes)]);
    }
  });
});
