import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

/** The last commit before the rule. */
const RULE_BEGINS_AFTER = "4c6cc62fd2514ec239d257d9c6ee5767a711c8fb";
const SUBJECT = /^[a-z0-9][a-z0-9/ ,.-]*: \S/;
const SUBJECT_LENGTH = 72;

/** @returns the output of git, or undefined where this is no checkout or the commits are not in it. */
function git(...args: string[]): string | undefined {
  try {
    return execFileSync("git", args, {
      cwd: import.meta.dirname,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
  } catch {
    return undefined;
  }
}

test("commit subjects are `area: what changes` in at most 72 characters", (t) => {
  const log = git("log", "--no-merges", "--format=%h %s", `${RULE_BEGINS_AFTER}..HEAD`);
  if (log === undefined) return t.skip("not a git checkout with its history");
  const subjects = log.split("\n").filter((line) => line !== "");
  const wrong = subjects.filter((line) => {
    const subject = line.slice(line.indexOf(" ") + 1);
    return subject.length > SUBJECT_LENGTH || !SUBJECT.test(subject);
  });
  assert.deepEqual(wrong, []);
});
