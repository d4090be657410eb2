import assert from "node:assert/strict";
import { test } from "node:test";
import { readManifestText } from "../../agent/cluster/manifests/read-manifests.ts";
import type { LiveDaemon } from "../../agent/daemon/inspect-report.ts";
import { offlineState } from "../../contract/inspect/offline-state.ts";
import { silentLogger } from "../../logging/logger.ts";
import { serviceTable } from "./service-table.ts";

const service = (name: string, index: number): string => `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { clusterIP: 10.96.0.${index}, ports: [{ port: 80 }] }
`;

const slice = (name: string): string => `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ port: 8080 }]
endpoints: [{ addresses: [10.180.0.1] }]
`;

/** `b` has an endpoint, `a` and `c` have none. */
async function daemon(): Promise<LiveDaemon> {
  const texts = [...["a", "b", "c"].map((name, index) => service(name, index + 1)), slice("b")];
  const objects = await readManifestText(texts.join("---"), "shop.yaml");
  const options = { family: "IPv4", nodeName: "n", allowExternalIPs: true, log: silentLogger } as const;
  const { state } = offlineState(objects, options);
  const parts = { families: [{ family: "IPv4", state }], node: "n", zone: () => undefined };
  return { ...parts, verdict: () => ({ failures: [] }) } as unknown as LiveDaemon; // what the table needs
}

const QUESTION = { words: [], namespace: "", offset: 0, limit: 1 };

test("rows beyond the limit are counted, and of the troubled alone where these are asked for", async () => {
  const { signal } = new AbortController();
  const all = await serviceTable(await daemon(), QUESTION, signal);
  assert.deepEqual([all.total, all.matching, all.rows.map((row) => row.service)], [3, 3, ["shop/a"]]);
  const troubled = await serviceTable(await daemon(), { ...QUESTION, words: ["is:broken"] }, signal);
  assert.deepEqual([troubled.total, troubled.matching, troubled.rows.length], [3, 2, 1]);
  const next = await serviceTable(await daemon(), { ...QUESTION, words: ["is:broken"], offset: 1 }, signal);
  assert.deepEqual([next.matching, next.rows.map((row) => row.service)], [2, ["shop/c"]]);
});

test("rows are sorted by each column, both ways; what is not known is last, and equal rows stay by name", async () => {
  const sorted = async (sort: string, offset = 0, limit = 9) => {
    const table = await serviceTable(
      await daemon(),
      { ...QUESTION, sort, offset, limit },
      new AbortController().signal,
    );
    return table.rows.map((row) => row.service.replace("shop/", "")).join("");
  };
  const sorts = ["", "name", "-name", "type", "-type", "addresses", "-addresses", "pods", "-pods", "state", "-state"];
  const orders = await Promise.all(sorts.map((sort) => sorted(sort)));
  assert.deepEqual(orders, ["abc", "abc", "cba", "abc", "abc", "abc", "cba", "bac", "bac", "bac", "acb"]);
  assert.equal(await sorted("-name", 1, 1), "b");
  const { rows } = await serviceTable(await daemon(), { ...QUESTION, limit: 9 }, new AbortController().signal);
  const known = rows.map(({ type, families, weights }) => [type, families[0]?.ready, families[0]?.endpoints, weights]);
  assert.deepEqual(known, [
    ["ClusterIP", null, 0, []],
    ["ClusterIP", 1, 1, []],
    ["ClusterIP", null, 0, []],
  ]);
});
