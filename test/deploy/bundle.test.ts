/** The bundle of the program, where a build has made one. */
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { compiledCodeFile, compileProgram } from "../../src/tools/cli/program-script.ts";
import { readAssets } from "../../src/tools/page/assets.ts";
import { BUILT_MAIN } from "../../testkit/needs/built-program.ts";
import { runCommand } from "../../testkit/net/run-command.ts";

const CHECKOUT = fileURLToPath(new URL("../../", import.meta.url));
const SCRIPT = join(CHECKOUT, "dist/bundle/kube-proxy.cjs");
const SOURCE = join(CHECKOUT, "src/tools/cli/proxy-command.ts");
const isCurrent = existsSync(BUILT_MAIN) && statSync(BUILT_MAIN).mtimeMs > statSync(SOURCE).mtimeMs;

describe("the bundled program", { skip: isCurrent ? false : "not built: npm run build" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bundle-"));
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("writes to the log which line of the sources wrote", async () => {
    const args = ["--write-config-to", join(folder, "config.yaml")];
    const { stderr } = await runCommand([process.execPath, BUILT_MAIN, ...args], { timeoutMs: 60_000 });
    const line = /proxy-command\.ts:(\d+)\] "Wrote configuration"/.exec(stderr)?.[1];
    assert.match(readFileSync(SOURCE, "utf8").split("\n")[Number(line) - 1] ?? "", /log\.info\("Wrote configuration"/);
  });

  test("knows that line of every call that may write to the log, also where the script's line ends within the call", () => {
    const places: unknown = JSON.parse(readFileSync(join(CHECKOUT, "dist/bundle/log-places.json"), "utf8"))[
      "kube-proxy.cjs"
    ];
    assert.ok(typeof places === "object" && places !== null);
    const lines = readFileSync(SCRIPT, "utf8").split("\n");
    const broken = lines.flatMap((line, index) =>
      /\.$/.test(line) && /^error\(/.test(lines[index + 1] ?? "") ? [index + 2] : [],
    );
    for (const line of broken) assert.ok(`${line}:1` in places, `line ${line}`);
  });

  test("finds the packages that manifests are read with", async () => {
    const manifest = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "shop", name: "web" },
      spec: { clusterIP: "10.96.0.10", ports: [{ port: 80 }] },
    };
    // JSON is YAML, and its own parser is not used here.
    writeFileSync(join(folder, "service.yaml"), JSON.stringify(manifest));
    const args = ["render", "--mode", "nftables", "-f", join(folder, "service.yaml"), "--hostname-override", "node-a"];
    const { stdout } = await runCommand([process.execPath, BUILT_MAIN, ...args], { timeoutMs: 60_000 });
    assert.match(stdout, /shop\/web/);
  });

  test("has its compiled code beside it, which the engine takes, and does without", () => {
    const script = compileProgram(SCRIPT);
    assert.equal(script.cachedDataRejected, false, "made with other options, or of another text: npm run build");
    const copy = join(folder, "copy.cjs");
    writeFileSync(copy, `${readFileSync(SCRIPT, "utf8")}\n`);
    assert.equal(compileProgram(copy).cachedDataRejected, undefined, "none is there");
    writeFileSync(copy, `${readFileSync(SCRIPT, "utf8")}\n\n`);
    copyFileSync(compiledCodeFile(SCRIPT), compiledCodeFile(copy));
    assert.equal(compileProgram(copy).cachedDataRejected, true, "made of another text");
  });

  test("takes its compiled code with the options that bin/kube-proxy gives, once they are taken back", async () => {
    const probe = `
      const { takeBackEngineOptions } = await import(${JSON.stringify(join(CHECKOUT, "src/agent/daemon/engine-options.ts"))});
      const { compileProgram } = await import(${JSON.stringify(join(CHECKOUT, "src/tools/cli/program-script.ts"))});
      const rejected = () => compileProgram(${JSON.stringify(SCRIPT)}).cachedDataRejected;
      const given = rejected();
      takeBackEngineOptions();
      console.log(JSON.stringify([given, rejected()]));`;
    const [, options = ""] =
      /^node_options="(.*)"$/m.exec(readFileSync(join(CHECKOUT, "bin/kube-proxy"), "utf8")) ?? [];
    const words = [process.execPath, ...options.split(" "), "--input-type=module", "-e", probe] as const;
    const { stdout } = await runCommand(words, { timeoutMs: 60_000 });
    assert.deepEqual(JSON.parse(stdout), [true, false]);
  });

  test("ends in good order on a signal that arrives while it is loaded", async () => {
    const hook = join(folder, "signal-itself.cjs");
    // The constructor that compiles the script.
    writeFileSync(
      hook,
      `const vm = require("node:vm");
      vm.Script = class extends vm.Script {
        constructor(...args) {
          super(...args);
          process.kill(process.pid, "SIGTERM");
        }
      };`,
    );
    const args = ["--require", hook, BUILT_MAIN, "--manifests", folder, "--hostname-override", "node-a"];
    const { status, stderr } = await runCommand([process.execPath, ...args], { timeoutMs: 60_000, allowFailure: true });
    assert.equal(status, 0, stderr);
    assert.match(stderr, / signal="SIGTERM"$/m);
    assert.doesNotMatch(stderr, /"Version info"/);
  });

  test("runs the commands, and refuses other words as kube-proxy does", async () => {
    const limits = { timeoutMs: 60_000, allowFailure: true };
    const { stdout } = await runCommand([process.execPath, BUILT_MAIN, "help"], limits);
    assert.match(stdout, /^Usage: kube-proxy help/);
    const { status, stderr } = await runCommand([process.execPath, BUILT_MAIN, "foo"], limits);
    assert.deepEqual([status, stderr], [1, 'Error: "kube-proxy" does not take any arguments, got ["foo"]\n']);
  });

  test("has the files of the page beside it, without types", async () => {
    const [built, sources] = await Promise.all([readAssets(join(CHECKOUT, "dist/tools/page/client/")), readAssets()]);
    assert.deepEqual([...built.keys()].sort(), [...sources.keys()].sort());
    for (const [path, { type, bytes }] of sources) {
      assert.deepEqual([path, built.get(path)?.type, String(built.get(path)?.bytes)], [path, type, String(bytes)]);
    }
  });
});
