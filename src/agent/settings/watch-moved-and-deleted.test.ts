import assert from "node:assert/strict";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CONFIG_UPDATED_MESSAGE, watchConfigFile } from "./watch-config-file.ts";

test("a file that an editor moves aside, writes again and deletes counts as moved away", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "kpts-config-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const file = join(dir, "config.conf");
  writeFileSync(file, "mode: iptables\n");
  const watched = watchConfigFile(file);
  t.after(() => watched.close());
  // vim with its defaults (backupcopy=auto, writebackup), while the daemon is busy with a sync.
  renameSync(file, `${file}~`);
  writeFileSync(file, "mode: nftables\n");
  rmSync(`${file}~`);
  const first = await Promise.race([
    watched.updated,
    new Promise((resolve) => setTimeout(resolve, 20_000, "nothing").unref()),
  ]);
  assert.equal(first, CONFIG_UPDATED_MESSAGE);
});
