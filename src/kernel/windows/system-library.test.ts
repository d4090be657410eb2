import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

test("calls on worker threads have the stack that threads of Windows have", () => {
  // In a separate process: koffi refuses to be configured once any library is open.
  const module = JSON.stringify(new URL("./system-library.ts", import.meta.url).href);
  const program = `const { windowsKoffi } = await import(${module});
    if (windowsKoffi() !== windowsKoffi()) throw new Error("configured twice");
    console.log(String(windowsKoffi().config().async_stack_size));`;
  assert.equal(
    execFileSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" }),
    "1048576\n",
  );
});
