import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Manifests } from "./manifests.ts";

const service = (name: string, port = 80, nodePort = 0) =>
  `apiVersion: v1
kind: Service
metadata: { name: ${name} }
spec: { type: NodePort, clusterIP: 10.96.0.1, ports: [{ port: ${port}, nodePort: ${nodePort} }] }
`;

test("while a document is broken its last good version counts, and the problem names the file; mended, it is gone", async (t) => {
  const path = await mkdtemp(join(tmpdir(), "kpts-manifests-"));
  t.after(() => rm(path, { recursive: true }));
  const file = join(path, "web.yaml");
  await writeFile(file, `${service("a")}---\n${service("b")}`);
  const manifests = await Manifests.open(path);
  for (const broken of ["kind: [\n", service("b", 70_000), service("b", 80, 300_800)]) {
    await writeFile(file, `${service("a", 81)}---\n${broken}`);
    await manifests.refresh();
    const { services } = manifests.cluster();
    assert.deepEqual(
      services.map(({ name, ports }) => [name, ports[0]?.port]),
      [
        ["a", 81],
        ["b", 80],
      ],
    );
    assert.equal(manifests.problems().length, 1);
    assert.match(manifests.problems()[0] ?? "", /web\.yaml:\d+: document 2: /);
  }
  await writeFile(file, service("a"));
  assert.equal(await manifests.refresh(), true);
  assert.deepEqual([manifests.cluster().services.length, manifests.problems()], [1, []]);
});

test("a path that does not exist is an error", async () => {
  await assert.rejects(Manifests.open("/nowhere/at/all"), { code: "ENOENT" });
});
