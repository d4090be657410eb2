/** A folder after any history, and with any bytes in its files. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { readManifests } from "./read-manifests.ts";
import { manifestBench, serviceYaml, sliceYaml } from "./testing/manifest-bench.ts";

/** One step of a folder's history. */
const step = fc.oneof(
  fc.record({
    do: fc.constantFrom("write" as const, "replace" as const),
    file: fc.constantFrom("a.yaml", "b.yaml", "d/c.yaml"),
    documents: fc.array(
      fc.oneof(
        fc
          .tuple(fc.constantFrom("a", "b", "c"), fc.integer({ min: 1, max: 3 }))
          .map(([name, port]) => serviceYaml(name, port)),
        fc
          .tuple(fc.constantFrom("s", "t"), fc.constantFrom("a", "b"))
          .map(([name, service]) => sliceYaml(name, service)),
        fc.constant("# nothing\n"),
      ),
      { minLength: 1, maxLength: 4 },
    ),
  }),
  fc.record({ do: fc.constant("remove" as const), file: fc.constantFrom("a.yaml", "b.yaml", "d/c.yaml", "d") }),
  fc.record({ do: fc.constant("look" as const), ms: fc.nat(300) }),
);

test("after any history of edits the sink holds what a fresh reading gives", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 15 }), async (steps) => {
      using it = await manifestBench({ "a.yaml": serviceYaml("a") });
      for (const change of steps) {
        if (change.do === "look") await it.look(change.ms);
        else if (change.do === "remove") it.temp.remove(change.file);
        else it.temp[change.do](change.file, change.documents.join("---\n"));
      }
      await it.settle();
      const fresh = await readManifests(it.temp.path);
      const records = [...fresh.services, ...fresh.endpointSlices].map((record) => JSON.stringify(record)).sort();
      assert.deepEqual(Array.from(it.sink.current.values(), (record) => JSON.stringify(record)).sort(), records);
    }),
    { numRuns: 60 },
  );
});

test("arbitrary files never stop the folder, and good ones beside them count", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 5 }), async (contents) => {
      using it = await manifestBench({ "z.yaml": serviceYaml("z") });
      for (const [index, bytes] of contents.entries()) {
        it.temp.write(index % 2 === 0 ? "a.yaml" : "b.json", Buffer.from(bytes).toString("latin1"));
        await it.settle();
      }
      assert.equal(it.servicePort("z"), 80);
    }),
    { numRuns: 40 },
  );
});
