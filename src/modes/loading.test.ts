import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { MODES } from "./registry.ts";

test("no mode loads whole node:util, which takes 12 ms of every start", async () => {
  for (const { name } of MODES) {
    const script = `
      import { modeNamed } from ${JSON.stringify(new URL("registry.ts", import.meta.url))};
      await modeNamed(${JSON.stringify(name)}).loadRuntime();
      console.log(JSON.stringify(process.moduleLoadList));
    `;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script]);
    const loaded: string[] = JSON.parse(stdout);
    // Reading every export of node:util loads it.
    assert.equal(loaded.includes("NativeModule internal/assert/myers_diff"), false, name);
  }
});
