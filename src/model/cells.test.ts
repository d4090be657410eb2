import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { silentLogger } from "../logging/logger.ts";
import { cellsOf, inCells, MOST_CELLS, sharesOf } from "./cells.ts";
import { EndpointsChangeTracker } from "./endpoints-change-tracker.ts";
import { categorizeEndpoints } from "./service-port-routing.ts";
import { makeEndpoint, makeEndpointRecord, makeServicePort, makeSlice } from "./testing/records.ts";

const weighted = (...weights: (number | undefined)[]) =>
  weights.map((weight, index) =>
    makeEndpoint(`10.0.${(index + 1) >> 8}.${(index + 1) & 255}`, 80, weight === undefined ? {} : { weight }),
  );

test("without weights each endpoint has one cell, and the list stays the same object", () => {
  const endpoints = weighted(undefined, undefined, undefined);
  assert.deepEqual(cellsOf(endpoints), [1, 1, 1]);
  assert.equal(inCells(endpoints), endpoints);
  assert.deepEqual(cellsOf([]), []);
});

test("weights up to 16 are cells; one endpoint alone has one", () => {
  assert.deepEqual(cellsOf(weighted(1, 9)), [1, 9]);
  assert.deepEqual(cellsOf(weighted(16, 4, 2)), [16, 4, 2]);
  assert.deepEqual(cellsOf(weighted(9)), [1]);
  assert.deepEqual(sharesOf(weighted(1, 9)), [0.1, 0.9]);
  assert.deepEqual(
    inCells(weighted(1, 3)).map(({ ip }) => ip),
    ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"],
  );
});

test("an endpoint without a weight counts as 100 beside one with a weight", () => {
  assert.deepEqual(sharesOf(weighted(50, undefined)), sharesOf(weighted(50, 100)));
});

test("larger weights are halved, and the smallest keeps a cell", () => {
  assert.deepEqual(cellsOf(weighted(1, 65_535)), [1, 32]);
  for (const count of [130, 1_000, 5_000]) {
    const cells = cellsOf(weighted(...Array.from({ length: count }, (_, index) => (index === 0 ? 65_535 : 1))));
    const sum = cells.reduce((total, one) => total + one, 0);
    assert.ok(sum <= Math.max(MOST_CELLS, count), `${count}: ${sum}`);
    assert.ok(cells.every((one) => one >= 1));
  }
});

const slicesOf = fc.uniqueArray(
  fc.record({
    name: fc.constantFrom("a", "b", "c", "d"),
    weight: fc.option(fc.constantFrom(0, 1, 7, 100, 65_535), { nil: undefined }),
    addresses: fc.uniqueArray(fc.constantFrom("10.0.0.1", "10.0.0.2", "10.0.0.3"), { minLength: 1 }),
  }),
  { selector: ({ name }) => name },
);

test("every node has the same cells, in any order of the slices; of two slices the larger weight counts", () => {
  fc.assert(
    fc.property(
      slicesOf.chain((slices) =>
        fc.tuple(fc.constant(slices), fc.shuffledSubarray(slices, { minLength: slices.length })),
      ),
      ([slices, shuffled]) => {
        const seen = [slices, shuffled].map((order, node) => {
          const tracker = new EndpointsChangeTracker({
            family: "IPv4",
            nodeName: `node-${node}`,
            now: () => 0,
            log: silentLogger,
          });
          const live = new Map();
          for (const { name, weight, addresses } of order) {
            const endpoints = addresses.map((address) => makeEndpointRecord(address));
            tracker.update(makeSlice({ name, endpoints, ...(weight !== undefined && { weight }) }), false);
            for (const _ of tracker.apply(live));
          }
          const all = live.get("ns1/svc1:p/TCP") ?? [...live.values()][0] ?? [];
          const { cluster = [] } = categorizeEndpoints(all, makeServicePort(), {
            nodeName: `node-${node}`,
            zone: undefined,
          });
          return inCells(cluster).map(({ text }) => text);
        });
        assert.deepEqual(seen[0], seen[1]);
        const offered = new Set(slices.flatMap(({ weight, addresses }) => (weight === 0 ? [] : addresses)));
        assert.deepEqual(new Set(seen[0]), new Set([...offered].map((address) => `${address}:80`)));
      },
    ),
  );
});

test("a drained endpoint is in no set, and its node's health check does not count it", () => {
  const tracker = new EndpointsChangeTracker({ family: "IPv4", nodeName: "me", now: () => 0, log: silentLogger });
  const live = new Map();
  const endpoints = [makeEndpointRecord("10.0.0.1", { nodeName: "me" })];
  tracker.update(makeSlice({ endpoints, weight: 0 }), false);
  for (const _ of tracker.apply(live));
  assert.equal(tracker.localReadyCounts.size, 0);
  const port = makeServicePort({ externalPolicyLocal: true, isExternallyAccessible: true });
  const [all] = live.values();
  assert.equal(all.length, 1, "its open connections are still known");
  const { cluster, local, reachable, hasAny } = categorizeEndpoints(all, port, { nodeName: "me", zone: undefined });
  assert.deepEqual({ cluster, local, reachable, hasAny }, { cluster: [], local: [], reachable: [], hasAny: false });
});
