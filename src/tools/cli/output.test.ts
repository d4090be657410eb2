import assert from "node:assert/strict";
import { test } from "node:test";
import { EXIT_BAD_INPUT, inspecting, type Output, painted, terminalOf, UsageError, widthOf } from "./output.ts";

test("a width is known of terminals that say one", () => {
  assert.equal(widthOf({ isTTY: true, columns: 100 }), 100);
  assert.equal(widthOf({ isTTY: true, columns: 0 }), undefined, "script and docker exec -t");
  assert.equal(widthOf({ isTTY: true }), undefined);
  assert.equal(widthOf({ columns: 100 }), undefined, "a pipe");
});

test("colour: in terminals, unless the environment or the flag says otherwise", () => {
  const tty = { isTTY: true, columns: 80 };
  const has = (...of: Parameters<typeof terminalOf>) => terminalOf(...of).hasColour;
  assert.equal(has(tty, "auto", {}), true);
  assert.equal(has({}, "auto", {}), false);
  assert.equal(has(tty, "auto", { NO_COLOR: "1" }), false);
  assert.equal(has(tty, "auto", { NO_COLOR: "" }), true, "empty counts as not set");
  assert.equal(has(tty, "auto", { TERM: "dumb" }), false);
  assert.equal(has({}, "always", { NO_COLOR: "1" }), true);
  assert.equal(has(tty, "never", {}), false);
});

test("words are coloured as what they mean, and a word within another is none", () => {
  const shown = painted("NOT healthy: web is refused, unhealthy-check is ready", { hasColour: true });
  const parts = shown.split("\u001b[");
  assert.deepEqual(
    parts.slice(1).map((part) => part.replace(/^\d+m/, "")),
    ["NOT healthy", ": web is ", "refused", ", unhealthy-check is ", "ready", ""],
  );
  assert.equal(painted("NOT healthy"), "NOT healthy", "without a terminal: as it is");
});

test("a usage error is printed with its hint and ends with its own status; any other error is thrown", async () => {
  let printed = "";
  const output: Output = { out: () => {}, err: (text) => (printed += text) };
  const status = await inspecting(output, () =>
    Promise.reject(new UsageError("--node: no such\u001b[2J node", "Give another.")),
  );
  assert.equal(status, EXIT_BAD_INPUT);
  assert.match(printed, /^Error: --node: no such.*node\nGive another\.\n$/);
  assert.ok(!printed.includes("\u001b"), "what others wrote moves no cursor");
  await assert.rejects(
    inspecting(output, () => Promise.reject(new TypeError("a fault"))),
    /a fault/,
  );
  assert.equal(await inspecting(output, () => Promise.resolve(1)), 1);
});
