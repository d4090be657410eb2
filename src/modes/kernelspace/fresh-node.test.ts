/** A freshly booted node: what is served first, and how many HNS calls that takes. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { silentLogger } from "../../logging/logger.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { hcnWith } from "./start.ts";
import { LOOK_MS, newHost, newModel, type TestModel } from "./testing/kernelspace-rig.ts";

const SERVICES = 100;
const ENDPOINTS = 5;

function fill(model: TestModel): void {
  for (let number = 0; number < SERVICES; number += 1) {
    const pods = Array.from({ length: ENDPOINTS }, (_, index) => remote(`10.180.${number}.${index + 1}`));
    model.set(port(`svc-${number}`, `10.96.1.${number}`, { nodePort: 30_000 + number }), pods);
  }
}

/** For each load balancer in order, the number of calls until it is created. */
function callsUntilMade(model: TestModel): readonly (readonly [calls: number, frontend: string])[] {
  return model.rig.host.takeCalls().flatMap(({ verb, kind, about }, index) => {
    if (verb !== "Create" || kind !== "LoadBalancer") return [];
    const [, vip = "*"] = /"FrontendVIPs":\["(.*?)"\]/.exec(about) ?? [];
    return [[index + 1, vip] as const];
  });
}

describe("a fresh node", () => {
  test("serves by Service: the first one after its own endpoints, cluster IPs before node ports", async () => {
    const model = newModel();
    fill(model);
    await model.rig.sync();
    const made = callsUntilMade(model);
    // HNS is read, the network is opened, and each endpoint takes three calls.
    assert.ok((made[0]?.[0] ?? 0) <= 10 + 3 * ENDPOINTS + 1, `first load balancer at call ${made[0]?.[0]}`);
    const clusterIPs = made.slice(0, SERVICES);
    assert.ok(clusterIPs.every(([, vip]) => vip !== "*"));
    for (const [index, [calls]] of clusterIPs.entries()) {
      assert.ok(calls <= 10 + (index + 1) * (3 * ENDPOINTS + 3), `load balancer ${index + 1} at call ${calls}`);
    }
    assert.equal(made.length, 2 * SERVICES);
  });

  test("serves name resolution and the API server before all else", async () => {
    const model = newModel();
    fill(model);
    model.set(port("kubernetes", "10.96.0.1", { name: servicePortName("default", "kubernetes", "https", "TCP") }), [
      remote("10.0.0.9"),
    ]);
    model.set(port("dns", "10.96.0.10", { port: 53 }), [remote("10.180.200.1")]);
    await model.rig.sync();
    const first = callsUntilMade(model)
      .slice(0, 2)
      .map(([, vip]) => vip);
    assert.deepEqual(first.sort(), ["10.96.0.1", "10.96.0.10"]);
  });

  test("the other family reads nothing again of what one has made", async () => {
    const host = newHost();
    const hcn = hcnWith(host, silentLogger);
    const [model, other] = [newModel({ host, client: hcn }), newModel({ host, client: hcn, family: "IPv6" })];
    await other.rig.sync();
    fill(model);
    await model.rig.sync();
    host.takeCalls();
    other.rig.watch();
    await other.rig.clock.advance(LOOK_MS);
    assert.deepEqual(
      host.takeCalls().filter(({ verb }) => verb === "Query" || verb === "Open"),
      [],
    );
    await other.rig.close();
  });

  test("the end of the process waits for one call of a look, not for all", async () => {
    const host = newHost();
    const [model, other] = [newModel({ host }), newModel({ host, family: "IPv6" })];
    await other.rig.sync();
    fill(model);
    await model.rig.sync();
    other.rig.watch();
    let reads = 0;
    let closed: Promise<void> | undefined;
    host.refuse(({ verb }) => {
      if (verb === "Query" && ++reads === 3) closed = other.rig.close();
      return undefined;
    });
    await other.rig.clock.advance(LOOK_MS);
    await closed;
    assert.equal(reads, 3);
    assert.deepEqual(other.rig.logged("error"), []);
  });
});
