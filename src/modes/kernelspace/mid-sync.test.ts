/** Changes in HNS while a sync reads and writes it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { ip } from "../../model/testing/records.ts";
import { listOf } from "./hcn/json-fields.ts";
import { newModel } from "./testing/kernelspace-rig.ts";

for (const then of ["loses the pod", "is deleted"] as const) {
  test(`a pod's endpoint that is made while the host is looked at makes no load balancer foreign: the Service ${then}`, async () => {
    const model = newModel();
    const { host } = model.rig;
    const web = port("web", "10.96.0.1");
    model.set(web, [remote("10.180.1.1")]);
    // The CNI plugin creates it between the listing of the network's endpoints and that of the host's.
    let isMade = false;
    host.refuse(({ verb, kind, about }) => {
      if (isMade || verb !== "Enumerate" || kind !== "Endpoint" || about.includes("Filter")) return undefined;
      isMade = true;
      host.addEndpoint({ name: "pod", addresses: ["10.180.0.1"] });
      return undefined;
    });
    await model.rig.sync();
    assert.equal(isMade, true);
    model.setEndpoints(web, [local("10.180.0.1"), remote("10.180.1.1")]);
    assert.deepEqual((await model.rig.sync()).failures, []);
    if (then === "is deleted") model.delete(web);
    else model.setEndpoints(web, [remote("10.180.1.1")]);
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.equal(host.documents("LoadBalancer").size, then === "is deleted" ? 0 : 1);
  });
}

test("a pod that goes while its load balancer is changed does not cost the load balancer", async () => {
  const model = newModel();
  const { host } = model.rig;
  const web = port("web", "10.96.0.1");
  const pod = host.addEndpoint({ name: "pod", addresses: ["10.180.0.1"] });
  model.set(web, [local("10.180.0.1"), remote("10.180.1.1")]);
  await model.rig.sync();
  const [before] = host.documents("LoadBalancer").keys();
  // A second pod on another node joins; the CNI plugin removes the local pod's endpoint before the slice says so.
  host.refuse(({ verb, kind }) => {
    if (verb === "Modify" && kind === "LoadBalancer") host.removeEndpoint(pod);
    return undefined;
  });
  model.setEndpoints(web, [local("10.180.0.1"), remote("10.180.1.1"), remote("10.180.1.2")]);
  const { failures } = await model.rig.sync();
  assert.equal(failures.length, 1);
  assert.deepEqual([...host.documents("LoadBalancer").keys()], [before], "clients of healthy pods are cut off");
});

test("a load balancer that is made and whose answer is lost goes with its Service", async () => {
  const model = newModel();
  const { host } = model.rig;
  let isMade = false;
  const heal = host.refuse(({ verb, kind }) => {
    if (isMade && verb === "Query") {
      heal();
      return HR.outOfMemory;
    }
    isMade ||= verb === "Create" && kind === "LoadBalancer";
    return undefined;
  });
  const web = port("web", "10.96.0.1");
  model.set(web, [remote("10.180.1.1")]);
  await model.rig.sync();
  model.delete(web);
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.equal(host.documents("LoadBalancer").size, 0);
});

test("a change that is made and whose answer is lost is known to be made", async () => {
  const model = newModel();
  const { host } = model.rig;
  const web = port("web", "10.96.0.1");
  const both = [remote("10.180.1.1"), remote("10.180.1.2")];
  model.set(web, both);
  await model.rig.sync();
  let isChanged = false;
  const heal = host.refuse(({ verb }) => {
    if (isChanged && verb === "Query") {
      heal();
      return HR.outOfMemory;
    }
    isChanged ||= verb === "Modify";
    return undefined;
  });
  model.setEndpoints(web, both.slice(0, 1));
  assert.equal((await model.rig.sync()).failures.length, 1);
  model.setEndpoints(web, both);
  assert.deepEqual((await model.rig.sync()).failures, []);
  const [document] = host.documents("LoadBalancer").values();
  assert.equal(listOf(document?.HostComputeEndpoints).length, 2, "clients reach one of two pods");
});

test("a health-check load balancer that HNS refuses for now is tried again", async () => {
  const model = newModel({ config: { healthPort: 10256 }, rootName: "root" });
  const { host } = model.rig;
  const root = host.addEndpoint({ name: "root", addresses: ["10.0.0.99"] });
  const isHealth = (text: string) => text.includes(root);
  const heal = host.refuse(({ verb, kind, about }) =>
    verb === "Create" && kind === "LoadBalancer" && isHealth(about) ? HR.outOfMemory : undefined,
  );
  model.set(port("web", "10.96.0.1", { loadBalancerVIPs: [ip("192.0.2.9")] }), [remote("10.180.1.1")]);
  await model.rig.sync();
  heal();
  model.rig.watch();
  await model.rig.clock.advance(60_000);
  // Also while other Services change.
  model.set(port("other", "10.96.0.2"), [remote("10.180.1.2")]);
  await model.rig.sync();
  const health = [...host.documents("LoadBalancer").values()].filter((one) =>
    listOf(one.HostComputeEndpoints).includes(root),
  );
  assert.equal(health.length, 1, `asked for syncs: ${JSON.stringify(model.rig.asked)}`);
  await model.rig.close();
});
