import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpAddress } from "../src/net/ip.ts";
import { lostClaims, targetsOf } from "./targets.ts";
import { viewOf } from "./testing/example-cluster.ts";

const NODE = { IPv4: "10.200.0.2" as IpAddress, IPv6: "fd00:200::2" as IpAddress };

test("a node port that another Service has is not probed, and said; others of that Service are probed", () => {
  const service = (name: string, clusterIP: string, nodePort: number) => ({
    kind: "Service",
    metadata: { name },
    spec: { type: "NodePort", clusterIP, ports: [{ port: 80, nodePort }] },
  });
  const view = viewOf(service("b", "10.96.0.2", 30080), service("a", "10.96.0.1", 30080));
  const asked = targetsOf(view, NODE, () => true).map(({ service: { key }, kind }) => `${key} ${kind}`);
  assert.deepEqual(asked, [
    "default/a cluster IP",
    "default/a node port",
    "default/a localhost",
    "default/b cluster IP",
  ]);
  assert.deepEqual(lostClaims(view, NODE), [
    "default/b TCP 80 is not probed at node port 10.200.0.2:30080: default/a has it",
  ]);
});
