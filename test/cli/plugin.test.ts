/** The kubectl plugin at the door: it starts no daemon, names what it does not have, completes, and says when Node.js is too old. */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { COMMANDS } from "../../src/tools/cli/commands.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const at = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

const plugin = (...args: readonly string[]) => runKubeProxy(args, { program: at("bin/kubectl-kube_proxy") });

test("without a command and with any flags it lists its commands", async () => {
  const daemons = ["--kubeconfig=/dev/null", "--manifests=/", "--cleanup", "--config=/dev/null", "-v=9", "--", "-h"];
  for (const args of [[], ["--kubeconfig", "x"], ...daemons.map((flag) => [flag])]) {
    const { status, stdout, stderr } = await plugin(...args);
    assert.deepEqual([status, stderr], [0, ""], args.join(" "));
    for (const { name, summary } of COMMANDS)
      assert.match(stdout, new RegExp(`^  ${name} +${summary.slice(0, 20)}`, "m"));
  }
  assert.match((await plugin("--version")).stdout, /^Kubernetes v/);
});

test("what it does not have is named, and flags before the command are put right", async () => {
  const refusal = async (...args: readonly string[]) => {
    const { status, stdout, stderr } = await plugin(...args);
    assert.deepEqual([status, stdout], [1, ""]);
    return stderr;
  };
  assert.match(
    await refusal("get", "svc"),
    /^Error: unknown command "get" for "kubectl kube-proxy"\nIt says what kube-proxy does .* Its commands: .*explain/,
  );
  assert.match(await refusal("explian", "web"), /Did you mean kubectl kube-proxy explain\?/);
  assert.equal(
    await refusal("--context", "prod", "explain", "web"),
    "Error: --context comes after the command\nkubectl kube-proxy explain web --context prod\n",
  );
});

test("kubectl completes commands, flags and values", async () => {
  const words = async (...line: readonly string[]) => {
    const { status, stdout } = await runKubeProxy(line, { program: at("bin/kubectl_complete-kube_proxy") });
    assert.equal(status, 0);
    return stdout.trimEnd().split("\n");
  };
  assert.deepEqual(
    (await words("")).map((line) => line.replace(/\t.*/, "")),
    [...COMMANDS.map(({ name }) => name), ":4"],
  );
  assert.match(String(await words("expl")), /^explain\t.*,:4$/);
  assert.ok((await words("explain", "--no")).includes("--node"));
  assert.deepEqual(await words("diff", "--mode", "nf"), ["nftables", ":4"]);
  assert.deepEqual(await words("diff", "--mode=nf"), ["nftables", ":4"]);
  assert.deepEqual(await words("explain", "x", "-o", "js"), ["json", ":4"]);
  assert.deepEqual(await words("explain", "-f", ""), [":0"]);
});

test("a Node.js that is too old is named in one line, from krew's folder too", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-plugin-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const name = "kubectl-kube_proxy";
  for (const file of [name, "start.cjs"]) cpSync(at(`deploy/krew/${file}`), join(folder, file));
  mkdirSync(join(folder, "dist/bundle"), { recursive: true });
  writeFileSync(join(folder, "dist/bundle/main.js"), "console.log(process.argv.slice(2).join(' '));\n");
  mkdirSync(join(folder, "bin"));
  symlinkSync(join("..", name), join(folder, "bin", name));
  const old = join(folder, "old.cjs");
  writeFileSync(old, 'Object.defineProperty(process, "version", { value: "v20.20.2" });\n');
  symlinkSync(process.execPath, join(folder, "node"));
  const run = (path: string, env: Readonly<Record<string, string>> = {}) =>
    runKubeProxy(["explain", "a b"], { program: join(folder, "bin", name), env: { PATH: path, ...env } });
  assert.equal((await run(`${folder}:/usr/bin:/bin`)).stdout, "explain a b\n");
  const refused = await run(`${folder}:/usr/bin:/bin`, { NODE_OPTIONS: `--require=${old}` });
  assert.deepEqual([refused.status, refused.stdout], [1, ""]);
  assert.match(refused.stderr, /^kubectl kube-proxy needs Node\.js 24 or newer; .+ is v20\.20\.2\n$/);
});

test("npm, Debian and krew have it under one name", () => {
  const { bin } = JSON.parse(readFileSync(at("package.json"), "utf8"));
  const { metadata, spec } = parse(readFileSync(at("deploy/krew/kube-proxy.yaml"), "utf8"));
  assert.equal(metadata.name, "kube-proxy");
  const named = `kubectl-${String(metadata.name).replaceAll("-", "_")}`;
  assert.ok(Object.hasOwn(bin, named) && Object.hasOwn(bin, named.replace("kubectl-", "kubectl_complete-")));
  for (const { bin: file, uri } of spec.platforms) {
    assert.ok(existsSync(at(`deploy/krew/${file}`)), file);
    assert.match(uri, new RegExp(`/${named}-VERSION\\.tar\\.gz$`));
  }
});
