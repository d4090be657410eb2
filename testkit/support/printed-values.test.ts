import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");
/** Whose first word is surely a text: others are coloured where a terminal is, or FORCE_COLOR. */
const TEXT = /^console\.log\((?:\$\{)?(?:(?:String|JSON\.stringify)\(|["'`])/;

test("programs that a test starts print texts, which have no colour in a terminal", () => {
  const files = globSync(["{src,test}/**/*.test.ts", "testkit/**/*.ts"], { cwd: ROOT });
  // What join() gives is a text, too.
  const others = files.flatMap((file) =>
    [...readFileSync(join(ROOT, file), "utf8").matchAll(/console\.log\(.*/g)]
      .filter(([call]) => !TEXT.test(call) && !call.includes(".join(") && !file.endsWith("printed-values.test.ts"))
      .map(([call]) => `${file}: ${call}`),
  );
  assert.deepEqual(others, []);
});
