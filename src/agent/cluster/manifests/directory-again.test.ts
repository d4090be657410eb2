/** A directory that is deleted and created again is still watched, even if it gets the same inode number. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../../../testkit/support/patience.ts";
import { silentLogger } from "../../../logging/logger.ts";
import { createManifestsSource } from "./manifests-source.ts";

const service = (port: number): string =>
  JSON.stringify({
    ...{ apiVersion: "v1", kind: "Service", metadata: { name: "a" } },
    spec: { clusterIP: "10.96.0.1", ports: [{ port }] },
  });

test("a change in a directory that was made again is seen at once", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-again-"));
  t.after(() => rmSync(root, { recursive: true }));
  const directory = join(root, "d");
  const write = (port: number): void => {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, "a.json"), service(port));
  };
  write(80);
  const seen: number[] = [];
  const stop = new AbortController();
  const source = createManifestsSource({ dir: root, log: silentLogger, rescanMs: 60_000 });
  const running = source.run(
    {
      onEvent(kind, event) {
        if (kind === "services" && "ports" in event.object) seen.push(event.object.ports[0]?.port ?? 0);
      },
      onSynced() {},
    },
    stop.signal,
  );
  const isSeen = (port: number) => until(`port ${port}`, () => seen.at(-1) === port, { evidence: () => String(seen) });
  await isSeen(80);
  const { ino } = statSync(directory);
  rmSync(directory, { recursive: true });
  write(81);
  if (statSync(directory).ino !== ino) t.diagnostic("another inode number: this file system does not show it");
  await isSeen(81);
  write(82);
  await isSeen(82);
  stop.abort();
  await running;
  assert.deepEqual(seen, [80, 81, 82]);
});
