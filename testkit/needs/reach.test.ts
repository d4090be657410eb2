import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Sources } from "./reach.ts";

test("a module is reached over others, also those that are named as programs, and in circles", (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-reach-"));
  t.after(() => rmSync(root, { recursive: true }));
  const sources = {
    "far.ts": 'import { b } from "./circle.ts";',
    "circle.ts": 'import { c } from "./back.ts";\nimport { m } from "./module.ts";',
    "back.ts": 'import { b } from "./circle.ts";',
    "thread.ts": 'new Worker(new URL("module.ts", import.meta.url));',
    "other.ts": 'import { x } from "node:fs";\nconst missing = "./nothing.ts";',
    "module.ts": "",
  };
  for (const [file, source] of Object.entries(sources)) writeFileSync(join(root, file), source);
  const found = new Sources(root);
  const distance = (file: string) => found.reachedFrom(file).get("module.ts");
  assert.deepEqual(Object.keys(sources).map(distance), [2, 1, 2, 1, undefined, 0]);
  assert.deepEqual([...found.reachedFrom("far.ts").keys()], ["far.ts", "circle.ts", "back.ts", "module.ts"]);
});
