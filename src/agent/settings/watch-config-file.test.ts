import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, linkSync, mkdtempSync, renameSync, rmSync, symlinkSync, watch, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { CONFIG_UPDATED_MESSAGE, configFileState, watchConfigFile } from "./watch-config-file.ts";

describe("watchConfigFile", () => {
  let dir = "";
  let file = "";
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), "kpts-config-"));
    file = join(dir, "config.conf");
    writeFileSync(file, "mode: iptables\n");
  });
  afterEach(() => rmSync(dir, { recursive: true, force: true }));

  /** Kernel events arrive in order: once a later one has arrived, the watch under test has seen the earlier ones. */
  async function laterEventSeen(): Promise<void> {
    const marker = join(dir, "marker");
    writeFileSync(marker, "1");
    const later = watch(marker);
    writeFileSync(marker, "22");
    await once(later, "change");
    later.close();
    await new Promise((resolve) => setImmediate(resolve));
  }

  async function isQuiet(act: () => void): Promise<boolean> {
    const watched = watchConfigFile(file);
    let message: string | undefined;
    void watched.updated.then((text) => {
      message = text;
    });
    act();
    await laterEventSeen();
    watched.close();
    return message === undefined;
  }

  it("reports a write in place", async () => {
    const watched = watchConfigFile(file);
    writeFileSync(file, "mode: ipvs\n");
    assert.equal(await watched.updated, CONFIG_UPDATED_MESSAGE);
    watched.close();
  });

  it("reports a write between the reading and the start of the watch, but no replacement", async () => {
    const read = configFileState(file);
    writeFileSync(file, "mode: ipvs\n");
    const watched = watchConfigFile(file, read);
    assert.equal(await Promise.race([watched.updated, "nothing"]), CONFIG_UPDATED_MESSAGE);
    watched.close();
    writeFileSync(join(dir, "new"), "mode: nftables\n");
    renameSync(join(dir, "new"), file);
    const replaced = watchConfigFile(file, read);
    assert.equal(await Promise.race([replaced.updated, "nothing"]), "nothing");
    replaced.close();
  });

  it("reports a file that is moved away", async () => {
    const watched = watchConfigFile(file);
    renameSync(file, join(dir, "elsewhere"));
    assert.equal(await watched.updated, CONFIG_UPDATED_MESSAGE);
    watched.close();
  });

  it("watches the target of a symbolic link", async () => {
    const link = join(dir, "link");
    symlinkSync(file, link);
    const watched = watchConfigFile(link);
    writeFileSync(file, "mode: nftables\n");
    assert.equal(await watched.updated, CONFIG_UPDATED_MESSAGE);
    watched.close();
  });

  it("ignores a deletion, and everything that happens at the path afterwards", async () => {
    assert.equal(
      await isQuiet(() => {
        rmSync(file);
        writeFileSync(file, "mode: ipvs\n");
      }),
      true,
    );
  });

  it("ignores a replacement by renaming another file over it", async () => {
    assert.equal(
      await isQuiet(() => {
        writeFileSync(join(dir, "new"), "mode: ipvs\n");
        renameSync(join(dir, "new"), file);
      }),
      true,
    );
  });

  it("ignores the link swap of a ConfigMap volume", async () => {
    const link = join(dir, "..data");
    const real = file;
    symlinkSync(real, link);
    file = link;
    assert.equal(
      await isQuiet(() => {
        const next = join(dir, "next");
        writeFileSync(next, "mode: ipvs\n");
        symlinkSync(next, join(dir, "..tmp"));
        renameSync(join(dir, "..tmp"), link);
      }),
      true,
    );
  });

  it("ignores a change of mode or of links", async () => {
    assert.equal(
      await isQuiet(() => {
        chmodSync(file, 0o600);
        linkSync(file, join(dir, "hard"));
      }),
      true,
    );
  });

  it("says which file cannot be opened", () => {
    assert.throws(() => watchConfigFile(join(dir, "missing")), /no such file.*missing/);
  });
});
