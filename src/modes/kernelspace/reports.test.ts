/** Operators' reports about upstream that no other file tests (reference windows-practice.md §8); numbers are kubernetes issues. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { ip } from "../../model/testing/records.ts";
import type { Guid } from "./hcn/guid.ts";
import { listOf, objectOf, textOf } from "./hcn/json-fields.ts";
import { LOOK_MS, newModel, type TestModel } from "./testing/kernelspace-rig.ts";

const WEB = port("web", "10.96.0.1", { nodePort: 30080 });
const [A, B] = ["10.180.1.1", "10.180.1.2"] as const;

/** The endpoints of every load balancer, in HNS's order. */
function led({ rig: { host } }: TestModel): readonly (readonly string[])[] {
  const addresses = new Map<string, string>(
    [...host.documents("Endpoint")].map(([id, { IpConfigurations }]) => [
      id,
      textOf(objectOf(listOf(IpConfigurations)[0]).IpAddress),
    ]),
  );
  return [...host.documents("LoadBalancer").values()].map((one) =>
    listOf(one.HostComputeEndpoints).map((id) => addresses.get(textOf(id)) ?? "gone"),
  );
}

async function served(): Promise<TestModel> {
  const model = newModel();
  model.set(WEB, [remote(A), remote(B)]);
  await model.rig.sync();
  model.rig.host.takeCalls();
  return model;
}

describe("load balancers stay", () => {
  test("when the look-up of the network fails, and when it finds none (#110674, #135802)", async () => {
    const model = await served();
    const { host } = model.rig;
    const before = model.rig.state();
    const heal = host.refuse(({ kind }) => (kind === "Network" ? HR.outOfMemory : undefined));
    await assert.rejects(model.rig.sync({ full: true }), /HcnEnumerateNetworks failed/);
    heal();
    const [network] = host.documents("Network").keys();
    assert.ok(network !== undefined);
    host.removeNetwork(network);
    await assert.rejects(model.rig.sync({ full: true }), /HNS has no network/);
    assert.deepEqual(host.takeWrites(), []);
    assert.deepEqual(model.rig.state(), before);
  });

  test("apart from one that a failed creation has left without port mappings, if it is ours (#141488)", async () => {
    const model = await served();
    const { host } = model.rig;
    const [ours] = host.documents("Endpoint").keys();
    const theirs = host.addEndpoint({ network: host.addNetwork("docker", "NAT"), addresses: ["172.17.0.2"] });
    const add = (...endpoints: readonly (Guid | undefined)[]) =>
      host.addLoadBalancer({ HostComputeEndpoints: endpoints });
    const [bare, known, foreign] = [add(), add(ours), add(theirs)];
    assert.deepEqual((await model.rig.sync({ full: true })).failures, []);
    assert.deepEqual(
      [bare, known, foreign].map((id) => host.has("LoadBalancer", id)),
      [false, false, true],
    );
  });
});

test("a load balancer that has gone unseen is made again by the change that would have met it (#137530)", async () => {
  const model = await served();
  const { host } = model.rig;
  for (const id of [...host.documents("LoadBalancer").keys()]) host.loseLoadBalancer(id);
  model.setEndpoints(WEB, [remote(A)]);
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(led(model), [[A], [A]]);
  assert.deepEqual(
    host.takeWrites().filter(({ verb }) => verb === "Modify"),
    [],
    "nothing that is gone is changed",
  );
});

test("pods of two Services that vanish in one change leave no endpoint (#135144, #135146, #113521, #113524)", async () => {
  const model = await served();
  const other = port("other", "10.96.0.2");
  model.set(other, [remote("10.180.1.3"), remote("10.180.1.4")]);
  await model.rig.sync();
  assert.equal(model.rig.host.documents("Endpoint").size, 4);
  model.setEndpoints(WEB, [remote(A)]);
  model.setEndpoints(other, [remote("10.180.1.3")]);
  await model.rig.sync();
  assert.equal(model.rig.host.documents("Endpoint").size, 2);
  assert.deepEqual(led(model), [[A], [A], ["10.180.1.3"]]);
});

test("an address that a pod here gets after one elsewhere is free by then, and its own endpoint is nothing to delete (#130963, #131138, #138000, #76316)", async () => {
  const model = await served();
  const { rig } = model;
  model.setEndpoints(WEB, [remote(A)]);
  await rig.sync();
  assert.equal(rig.host.documents("Endpoint").size, 1, "free with the sync that tells of the pod's end");
  const own = rig.host.addEndpoint({ addresses: [B] });
  model.setEndpoints(WEB, [remote(A), local(B)]);
  await rig.sync();
  assert.deepEqual(led(model), [
    [A, B],
    [A, B],
  ]);
  model.setEndpoints(WEB, [remote(A)]);
  await rig.sync();
  await rig.sync({ full: true });
  assert.ok(rig.host.has("Endpoint", own));
});

test("a pod here whose endpoint comes after the slice that names it is led to as soon as it is there (#130963)", async () => {
  const model = await served();
  const { rig } = model;
  rig.watch();
  model.setEndpoints(WEB, [remote(A), local(B)]);
  await rig.sync();
  const own = rig.host.addEndpoint({ addresses: [B] });
  rig.asked.splice(0);
  await rig.clock.advance(LOOK_MS);
  assert.deepEqual(rig.asked, ["sync"]);
  assert.deepEqual((await rig.sync()).failures, []);
  assert.deepEqual(led(model), [
    [A, B],
    [A, B],
  ]);
  const remotes = [...rig.host.documents("Endpoint")].filter(([, { Flags }]) => Flags === 1);
  assert.equal(remotes.length, 1, "the one of the pod elsewhere is gone");
  assert.ok(rig.host.has("Endpoint", own));
  await rig.close();
});

test("a terminating pod is led to from no address while another is ready (§9.16, #113776)", async () => {
  const model = await served();
  model.setEndpoints(WEB, [remote(A), remote(B, { isReady: false, isTerminating: true })]);
  await model.rig.sync();
  assert.deepEqual(led(model), [[A], [A]]);
});

test("a LoadBalancer Service that is made again, with another address or none yet, is served as new (#100384, #116389)", async () => {
  const first = port("web", "10.96.0.1", { nodePort: 30080, loadBalancerVIPs: [ip("192.0.2.9")] });
  const second = { ...first, loadBalancerVIPs: [] };
  const third = port("web", "10.96.0.7", { nodePort: 30080, loadBalancerVIPs: [ip("192.0.2.10")] });
  for (const isSeenGone of [true, false]) {
    const model = newModel();
    for (const one of [first, second, third, first]) {
      model.delete(first);
      if (isSeenGone) await model.rig.sync();
      model.set(one, [remote(A), remote(B)]);
      assert.deepEqual((await model.rig.sync()).failures, []);
      const fresh = newModel();
      fresh.set(one, [remote(A), remote(B)]);
      await fresh.rig.sync();
      assert.deepEqual(model.rig.state(), fresh.rig.state());
    }
  }
});

test("HNS has no weights, which the log says once; a drained endpoint is in no load balancer (#132710)", async () => {
  const model = newModel();
  model.set(WEB, [
    { ...remote(A), weight: 1 },
    { ...remote(B), weight: 9 },
    { ...remote("10.180.1.3"), weight: 0 },
  ]);
  await model.rig.sync();
  await model.rig.sync({ full: true });
  assert.deepEqual(model.rig.logged("warn"), [
    "The weights of EndpointSlices have no effect on Windows, apart from 0: HNS has none, and all endpoints get as much",
  ]);
  assert.ok(led(model).length > 0);
  for (const endpoints of led(model)) assert.deepEqual(endpoints.toSorted(), [A, B]);
});
