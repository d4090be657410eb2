/** Which kubeconfigs are read if none is named. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { defaultKubeconfigs } from "./objects-input.ts";

test("all files of KUBECONFIG that are there, in order, between colons or, on Windows, semicolons", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-kubeconfigs-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [one, two, missing] = ["one", "two", "missing"].map((name) => join(folder, name));
  for (const path of [one, two]) writeFileSync(String(path), "");
  assert.deepEqual(defaultKubeconfigs({ KUBECONFIG: `${missing}:${two}::${one}` }, ":"), [two, one]);
  assert.deepEqual(defaultKubeconfigs({ KUBECONFIG: `${one};${missing};${two}` }, ";"), [one, two]);
  assert.deepEqual(defaultKubeconfigs({ KUBECONFIG: `${missing}` }, ":"), []);
});
