/** What an endpoint that this node leaves out means for the model: it gets no new connections, and nothing else changes. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { silentLogger } from "../logging/logger.ts";
import type { Endpoint } from "./endpoint.ts";
import { endpointReasons, topologyReason } from "./endpoint-reasons.ts";
import { ProxyState } from "./proxy-state.ts";
import { categorizeEndpoints } from "./service-port-routing.ts";
import { makeEndpoint, makeEndpointRecord, makeService, makeServicePort, makeSlice } from "./testing/records.ts";

const NODE = { nodeName: "me", zone: "zone-a" };
const LOCAL_OUTSIDE = makeServicePort({ externalPolicyLocal: true, isExternallyAccessible: true, nodePort: 30080 });
const LEFT = { leftOut: "no answer" };
const LOCAL = { isLocal: true };
const NEAR = { zoneHints: ["zone-a"] };

/** The last numbers of the chosen endpoints by policy, and the reasons of the others. */
function chosen(port: typeof LOCAL_OUTSIDE, ...parts: Partial<Endpoint>[]) {
  const all = parts.map((part, index) => makeEndpoint(`10.0.0.${index + 1}`, 80, part));
  const categories = categorizeEndpoints(all, port, NODE);
  const { cluster, local, reachable, hasAny } = categories;
  const numbers = (some: readonly Endpoint[] | undefined) => some?.map(({ ip }) => ip.slice(7)).join(" ");
  const reasons = endpointReasons(all, categories, topologyReason(all, NODE).mode);
  const out = reasons.flatMap(({ cluster }) => (cluster?.isUsed === false ? [cluster.reason] : []));
  return [numbers(cluster), numbers(local), numbers(reachable), hasAny, ...out];
}

describe("an endpoint that this node leaves out", () => {
  test("gets no new connections, under either policy, unless it would be the last of its set", () => {
    assert.deepEqual(chosen(LOCAL_OUTSIDE, LEFT, LOCAL, LOCAL), ["2 3", "2 3", "2 3", true, "unanswered"]);
    assert.deepEqual(chosen(LOCAL_OUTSIDE, {}, { ...LOCAL, ...LEFT }, LOCAL), ["1 3", "3", "1 3", true, "unanswered"]);
    assert.deepEqual(chosen(LOCAL_OUTSIDE, {}, { ...LOCAL, ...LEFT }), ["1", "2", "1 2", true, "unanswered"]);
    assert.deepEqual(chosen(makeServicePort(), LEFT, LEFT), ["1 2", undefined, "1 2", true]);
  });

  test("changes neither which hints count nor what terminating endpoints are for", () => {
    const far = { zoneHints: ["zone-b"] };
    const port = makeServicePort();
    assert.deepEqual(chosen(port, { ...NEAR, ...LEFT }, NEAR, far).slice(0, 1), ["2"]);
    assert.deepEqual(chosen(port, { ...NEAR, ...LEFT }, far).slice(0, 1), ["1"]);
    assert.deepEqual(chosen(port, LEFT, NEAR).slice(0, 1), ["2"]);
    assert.deepEqual(chosen(port, LEFT, { isReady: false, isTerminating: true }).slice(0, 1), ["1"]);
  });
});

describe("leaving endpoints out", () => {
  const KEY = "ns1/svc1:p/TCP";
  const SLICE = makeSlice({
    endpoints: ["10.0.0.1", "10.0.0.2"].map((address) => makeEndpointRecord(address, { nodeName: "me" })),
  });

  function synced() {
    const state = new ProxyState({
      ...{ family: "IPv4", nodeName: "me", allowExternalIPs: true, now: () => 0, log: silentLogger },
    });
    state.onService({ kind: "add", object: makeService() });
    state.onEndpointSlice({ kind: "add", object: SLICE });
    state.applyChanges();
    const out = () => (state.endpoints.get(KEY) ?? []).flatMap(({ text, leftOut }) => (leftOut ? [text] : []));
    return { state, out };
  }

  test("takes effect with the next sync, only for the service ports that change, and not on health checks", () => {
    const { state, out } = synced();
    const left = new Map([[KEY, new Map([["10.0.0.2:80", "no answer"]])]]);
    state.leaveOut(left);
    assert.deepEqual(out(), []);
    const changes = state.applyChanges();
    assert.deepEqual([[...changes.changedPorts], [...changes.updatedServices], out()], [[KEY], [], ["10.0.0.2:80"]]);
    assert.equal(changes.conntrackCleanupRequired, false);
    assert.equal(state.localReadyCounts.get("ns1/svc1"), 2);
    state.leaveOut(left);
    assert.deepEqual([...state.applyChanges().changedPorts], []);
    state.leaveOut(new Map([["ns1/gone:p/TCP", new Map([["10.0.0.9:80", "no answer"]])]]));
    assert.deepEqual([[...state.applyChanges().changedPorts], out()], [[KEY], []]);
  });

  test("ends with the next change of the slice", () => {
    const { state, out } = synced();
    state.leaveOut(new Map([[KEY, new Map([["10.0.0.2:80", "no answer"]])]]));
    state.applyChanges();
    const object = { ...SLICE, resourceVersion: "2" };
    state.onEndpointSlice({ kind: "update", old: SLICE, object });
    assert.deepEqual([[...state.applyChanges().changedPorts], out()], [[KEY], []]);
  });
});
