/** docs/debugging.md shows what its commands print. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isAsShown, printedBy, shownCommands } from "./debugging-page.ts";

test("every command of the page prints what the page shows", async () => {
  const commands = shownCommands();
  assert.ok(commands.length >= 16, "the commands are found at all");
  for (const { command, shown } of commands) {
    // It reads the rules' counters, which the kernel shows to root alone.
    if (command.startsWith("kube-proxy services") && process.getuid?.() !== 0) continue;
    const printed = await printedBy(command);
    if (!isAsShown(printed, shown)) assert.equal(printed, shown, command);
  }
});

test("lines may be left out where the page says so, and nowhere else", () => {
  assert.ok(isAsShown("a\nb\nc\n", "a\n…\nc\n"));
  assert.ok(isAsShown("a\nb\n", "a\n…\n"));
  assert.ok(!isAsShown("a\nb\nc\n", "a\nc\n"));
  assert.ok(!isAsShown("a\nb\nd\n", "a\n…\nc\n"));
});
