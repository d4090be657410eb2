/** What has to agree when a version is released, and the files that GitHub reads. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { CHECKOUT, proseLines } from "../docs/markdown.ts";

const read = (path: string) => readFileSync(join(CHECKOUT, path), "utf8");
const { version }: { readonly version: string } = JSON.parse(read("package.json"));

test("every place that has the version has this one", () => {
  const chart = parse(read("deploy/chart/Chart.yaml"));
  assert.deepEqual([chart.version, chart.appVersion], [version, version], "deploy/chart/Chart.yaml");
  for (const path of ["deploy/kubernetes/daemonset.yaml", "deploy/trial/daemonset.yaml"]) {
    assert.equal(parse(read(path)).spec.template.spec.containers[0].image, `kube-proxy-ts:${version}`, path);
  }
  assert.ok(read("deploy/image/Containerfile").includes(`image.version="${version}"`), "deploy/image/Containerfile");
  for (const path of ["README.md", "docs/operations.md"]) {
    const tags = [...read(path).matchAll(/kube-proxy-ts:(\d\S*)/g)].map(([, tag]) => tag);
    assert.deepEqual(new Set(tags), new Set([version]), path);
  }
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
