import assert from "node:assert/strict";
import { test } from "node:test";
import { isAtLeast, kernelRelease, parseKernelVersion } from "./kernel-version.ts";

test("the first two numbers of a release count", () => {
  assert.deepEqual(parseKernelVersion("6.1.0-13-amd64"), { major: 6, minor: 1 });
  assert.deepEqual(parseKernelVersion("5.13-rc1"), { major: 5, minor: 13 });
  assert.equal(parseKernelVersion("six"), undefined);
  assert.equal(parseKernelVersion(""), undefined);
});

test("versions are compared as numbers", () => {
  const least = { major: 5, minor: 13 };
  for (const [release, expected] of [
    ["5.13.0", true],
    ["5.9.0", false],
    ["5.100.1", true],
    ["4.19.0", false],
    ["6.0.0", true],
  ] as const) {
    const version = parseKernelVersion(release);
    assert.ok(version !== undefined);
    assert.equal(isAtLeast(version, least), expected, release);
  }
});

test("the running kernel has a version", async () => {
  assert.ok(parseKernelVersion(await kernelRelease()) !== undefined);
  await assert.rejects(kernelRelease("/proc/none"));
});
