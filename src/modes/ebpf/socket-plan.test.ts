import assert from "node:assert/strict";
import { test } from "node:test";
import { makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import { planSocket } from "./socket-plan.ts";

test("connected UDP stays with an endpoint that is published unready, also where topology leads new sockets elsewhere", () => {
  const zone = (name: string) => ({ zoneHints: [name] });
  const published = makeEndpoint("10.0.0.1", 53, { isServing: false, ...zone("b") });
  const unready = makeEndpoint("10.0.0.2", 53, { isReady: false, isServing: false, ...zone("a") });
  const near = makeEndpoint("10.0.0.3", 53, zone("a"));
  const port = makeServicePort({ protocol: "UDP" });
  const plan = planSocket(port, [published, unready, near], { nodeName: "node-a", zone: "a" });
  assert.deepEqual(plan.cluster, [near]);
  assert.deepEqual(plan.serving, [published, near]);
});
