import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { identityLine, readIdentity } from "./program-identity.ts";

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "kpts-identity-"));
  t.after(() => rmSync(path, { recursive: true }));
  writeFileSync(join(path, "package.json"), '{"version":"1.2.3"}');
  return path;
}

function git(cwd: string, ...args: readonly string[]): string {
  const env = { PATH: process.env.PATH, GIT_CONFIG_GLOBAL: "/dev/null", GIT_CONFIG_NOSYSTEM: "1" };
  const who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
  return execFileSync("git", [...who, ...args], { cwd, env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}

test("a checkout says its commit: on a branch, with packed references, detached, and in a linked worktree", (t) => {
  const root = folder(t);
  git(root, "init");
  git(root, "add", ".");
  git(root, "commit", "-m", "one");
  const commit = git(root, "rev-parse", "HEAD").trim();
  assert.deepEqual(readIdentity(root), { name: "kube-proxy-ts", version: "1.2.3", commit, node: process.version });
  const linked = join(folder(t), "linked");
  git(root, "worktree", "add", "-b", "feature/x", linked);
  assert.equal(readIdentity(linked).commit, commit);
  git(root, "pack-refs", "--all");
  assert.deepEqual([readIdentity(root).commit, readIdentity(linked).commit], [commit, commit]);
  git(root, "checkout", "--detach");
  assert.equal(readIdentity(root).commit, commit);
});

test("a checkout without a log of HEAD says its commit, too", (t) => {
  const root = folder(t);
  git(root, "init");
  git(root, "config", "core.logAllRefUpdates", "false");
  git(root, "add", ".");
  git(root, "commit", "-m", "one");
  const commit = git(root, "rev-parse", "HEAD").trim();
  assert.equal(readIdentity(root).commit, commit);
  git(root, "checkout", "--detach");
  assert.equal(readIdentity(root).commit, commit);
});

test("a build says what it was made from; nothing, or nonsense, is unknown", (t) => {
  const root = folder(t);
  assert.equal(readIdentity(root).commit, "unknown");
  mkdirSync(join(root, "dist"));
  for (const [text, commit] of [
    [`{"commit":"${"a1".repeat(20)}-dirty"}`, `${"a1".repeat(20)}-dirty`],
    ['{"commit":"main; rm -rf /"}', "unknown"],
    ['{"commit":7}', "unknown"],
    ["{", "unknown"],
  ] as const) {
    writeFileSync(join(root, "dist/build-info.json"), text);
    assert.equal(readIdentity(root).commit, commit, text);
  }
  assert.match(identityLine(readIdentity(root)), /^kube-proxy-ts 1\.2\.3 \(commit unknown, Node\.js v\d/);
});
