import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { memorySysctls } from "../../testkit/fakes/sysctl-memory.ts";
import { fileSysctls, SysctlError, type Sysctls } from "./sysctl.ts";

/** Both implementations start with these. */
const INITIAL = { one: 1, large: 1048576 };

function contract(name: string, withSysctls: (use: (sysctls: Sysctls) => Promise<void>) => Promise<void>): void {
  describe(name, () => {
    test("reads and writes integers", () =>
      withSysctls(async (sysctls) => {
        assert.equal(await sysctls.read("large"), 1048576);
        await sysctls.write("large", 7);
        assert.equal(await sysctls.read("large"), 7);
        assert.equal(await sysctls.read("one"), 1);
      }));

    test("a missing parameter is an error and is not created", () =>
      withSysctls(async (sysctls) => {
        const isMissing = (error: unknown): boolean => error instanceof SysctlError && error.code === "missing";
        await assert.rejects(sysctls.read("none"), isMissing);
        await assert.rejects(sysctls.write("none", 1), isMissing);
        await assert.rejects(sysctls.read("none"), isMissing);
      }));
  });
}

async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "kpts-sysctl-"));
  try {
    for (const [name, value] of Object.entries(INITIAL)) await writeFile(join(folder, name), `${value}\n`);
    await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

contract("sysctl files", (use) => inFolder((folder) => use(fileSysctls(folder))));
contract("sysctls in memory", (use) => use(memorySysctls(INITIAL)));

test("content that is not an integer is refused, naming the parameter", () =>
  inFolder(async (folder) => {
    await writeFile(join(folder, "text"), "cubic\n");
    await assert.rejects(fileSysctls(folder).read("text"), /sysctl text: expected an integer, got "cubic"/);
  }));

test("a value is written as bare digits", () =>
  inFolder(async (folder) => {
    await fileSysctls(folder).write("large", 12);
    assert.equal(await readFile(join(folder, "large"), "utf8"), "12");
  }));

test("the kernel's own parameters can be read", async () => {
  assert.ok((await fileSysctls().read("net/ipv4/ip_default_ttl")) > 0);
});

test("writes in memory are remembered, and refused where read-only", async () => {
  const sysctls = memorySysctls(INITIAL);
  await sysctls.write("one", 2);
  sysctls.readOnly.add("one");
  await assert.rejects(sysctls.write("one", 3), (error) => error instanceof SysctlError && error.code === "denied");
  assert.deepEqual(sysctls.writes, ["one=2"]);
});
