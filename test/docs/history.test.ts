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

/** The last commit before bodies were asked for. */
const BODIES_BEGIN_AFTER = "5d5eb196be56c12dabde9243d38ebb5be02ba64b";

test("commits say why in a body; a sign-off is none", (t) => {
  const log = git("log", "--no-merges", "--format=%h %s%n%b%x00", `${BODIES_BEGIN_AFTER}..HEAD`);
  if (log === undefined) return t.skip("not a git checkout with its history");
  const without = log.split("\0").flatMap((commit) => {
    const [subject = "", ...body] = commit.trim().split("\n");
    const isSaid = body.some((line) => line.trim() !== "" && !/^[A-Z][\w-]+-by: /.test(line));
    return subject === "" || isSaid ? [] : [subject];
  });
  assert.deepEqual(without, []);
});

test("what git blame leaves out is in the history", (t) => {
  if (git("rev-parse", "HEAD") === undefined) return t.skip("not a git checkout with its history");
  const list = git("show", "HEAD:.git-blame-ignore-revs") ?? "";
  const commits = list.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  if (git("cat-file", "-t", RULE_BEGINS_AFTER) === undefined) return t.skip("a shallow checkout");
  for (const commit of commits) assert.notEqual(git("merge-base", "--is-ancestor", commit, "HEAD"), undefined, commit);
});
