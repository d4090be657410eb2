import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { PRIORITY_CLASSES } from "../settings/validate.ts";
import { applyPriorityClass, type PriorityCalls } from "./windows-priority.ts";

function logOf(run: (log: Logger) => void): readonly string[] {
  const lines: string[] = [];
  const line = (level: string, text: string, facts: object = {}) =>
    void lines.push([level, text, ...Object.entries(facts).map(([key, value]) => `${key}=${value}`)].join(" "));
  run({
    ...silentLogger,
    info: (text, facts) => line("info", text, facts),
    warn: (text, facts) => line("warning", text, facts),
    error: (text, error, facts) => line("error", `${text}: ${error instanceof Error ? error.message : error}`, facts),
  });
  return lines;
}

/** A system that grants what is requested, or less. */
function system(most: number = constants.priority.PRIORITY_HIGHEST): PriorityCalls {
  let level = 0;
  return { set: (wanted) => (level = Math.max(wanted, most)), get: () => level };
}

test("each class is one level, the higher the class the lower the number", () => {
  const levels = [...PRIORITY_CLASSES.values()];
  assert.deepEqual(levels, [19, 10, 0, -7, -14, -20]);
});

test("a class is set and told", () => {
  const calls = system();
  const log = logOf((to) => applyPriorityClass("HIGH_PRIORITY_CLASS", to, calls));
  assert.equal(calls.get(), constants.priority.PRIORITY_HIGH);
  assert.deepEqual(log, ["info Set the priority class class=HIGH_PRIORITY_CLASS"]);
});

test("a class that Windows lowers without a word is told as what it is", () => {
  const log = logOf((to) =>
    applyPriorityClass("REALTIME_PRIORITY_CLASS", to, system(constants.priority.PRIORITY_HIGH)),
  );
  assert.deepEqual(log, [
    "warning Windows granted another priority class than requested wanted=REALTIME_PRIORITY_CLASS class=HIGH_PRIORITY_CLASS",
  ]);
});

test("a refusal is one line, and nothing ends", () => {
  const refusing: PriorityCalls = {
    ...system(),
    set: () => {
      throw new Error("access denied");
    },
  };
  const log = logOf((to) => applyPriorityClass("HIGH_PRIORITY_CLASS", to, refusing));
  assert.deepEqual(log, ["error Failed to set the priority class: access denied wanted=HIGH_PRIORITY_CLASS"]);
});

test("no class asks nothing of the system", () => {
  const calls: PriorityCalls = { set: () => assert.fail("set"), get: () => assert.fail("asked") };
  assert.deepEqual(
    logOf((to) => applyPriorityClass("", to, calls)),
    [],
  );
});
