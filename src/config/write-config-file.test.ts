import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "./defaults.ts";
import { encodeYaml } from "./v1alpha1-encode.ts";
import { writeConfigFile } from "./write-config-file.ts";

describe("writeConfigFile", () => {
  const dir = mkdtempSync(join(tmpdir(), "kpts-write-config-"));
  after(() => rmSync(dir, { recursive: true, force: true }));
  const config = applyPlatformDefaults(resolveDocument(EMPTY_DOCUMENT));

  it("replaces whatever the file held", async () => {
    const path = join(dir, "config.conf");
    writeFileSync(path, "x".repeat(10_000));
    await writeConfigFile(path, config);
    assert.equal(readFileSync(path, "utf8"), await encodeYaml(config));
  });

  it("fails with the file system's error", async () => {
    await assert.rejects(writeConfigFile(join(dir, "no", "such"), config), { code: "ENOENT" });
  });
});
