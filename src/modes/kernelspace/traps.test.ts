/** Upstream's faults that no other file tests (reference windows-practice.md §9), and operators' reports (§8). */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR, type MemoryHcnOptions } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import { listOf, objectOf } from "./hcn/json-fields.ts";
import { LOOK_MS, newModel, type TestModel } from "./testing/kernelspace-rig.ts";

const WEB = port("web", "10.96.0.1", { nodePort: 30080 });
const PODS = [remote("10.180.1.1"), remote("10.180.1.2")];
const INGRESS = { loadBalancerVIPs: [ip("192.0.2.9")] } as const;

/** Like a build of Windows that accepts at most 64 endpoints per load balancer. */
function refuseOver64Endpoints({ rig: { host } }: TestModel): void {
  host.refuse(({ verb, kind, about }) =>
    verb === "Create" && kind === "LoadBalancer" && listOf(objectOf(JSON.parse(about)).HostComputeEndpoints).length > 64
      ? 0x8007_0057
      : undefined,
  );
}

/** Load balancers by VIP and port, with the addresses of their endpoints. */
function named({ rig: { host } }: TestModel): Readonly<Record<string, readonly string[]>> {
  const addressOf = (id: unknown) =>
    String(objectOf(listOf(host.documents("Endpoint").get(id as never)?.IpConfigurations)[0]).IpAddress);
  const all = [...host.documents("LoadBalancer").values()].map((one) => {
    const { ExternalPort } = objectOf(listOf(one.PortMappings)[0]);
    const place = `${String(listOf(one.FrontendVIPs)[0] ?? "*")}:${String(ExternalPort)}`;
    return [place, listOf(one.HostComputeEndpoints).map(addressOf).sort()] as const;
  });
  return Object.fromEntries(all);
}

test("a Service that has its cluster IP among its other addresses has one load balancer there: the cluster IP's", async () => {
  for (const other of [{ externalIPs: [ip("10.96.0.1")] }, { loadBalancerVIPs: [ip("10.96.0.1")] }]) {
    const model = newModel();
    model.set(port("web", "10.96.0.1", { ...other, internalPolicyLocal: true }), [local("10.180.0.1"), ...PODS]);
    model.rig.host.addEndpoint({ name: "pod", addresses: ["10.180.0.1"] });
    await model.rig.sync();
    assert.deepEqual(named(model), { "10.96.0.1:80": ["10.180.0.1"] });
    const [document] = model.rig.host.documents("LoadBalancer").values();
    assert.equal(objectOf(listOf(document?.PortMappings)[0]).Flags, undefined);
  }
});

describe("upstream's faults", () => {
  test("§9.2: an L2Bridge is sent no source VIP, and an overlay always one (community #8890)", async () => {
    for (const [type, wanted] of [
      ["L2Bridge", []],
      ["Overlay", ["10.0.0.1"]],
    ] as const) {
      const model = newModel({ type });
      model.set(WEB, PODS);
      await model.rig.sync();
      const found = [...model.rig.host.documents("LoadBalancer").values()].flatMap(({ SourceVIP }) => SourceVIP ?? []);
      assert.deepEqual([...new Set(found)], wanted);
    }
  });

  test("§9.5: health checks of IPv6 have its flag, and stay through changes of pods where nothing changes in place", async () => {
    const model = newModel({ family: "IPv6", canModify: false, config: { healthPort: 10256 }, rootName: "root" });
    const { host } = model.rig;
    const root = host.addEndpoint({ name: "root", addresses: ["fd00::99"] });
    const service = port("web", "fd00::1", { loadBalancerVIPs: [ip("2001:db8::9")] });
    model.set(service, [remote("fd01::1"), remote("fd01::2")]);
    await model.rig.sync();
    const health = () =>
      [...host.documents("LoadBalancer")].find(([, one]) => listOf(one.HostComputeEndpoints).includes(root));
    const [before, document] = health() ?? [];
    assert.equal(document?.Flags, 2);
    model.setEndpoints(service, [remote("fd01::2")]);
    await model.rig.sync();
    assert.equal(health()?.[0], before);
    assert.equal(host.documents("LoadBalancer").size, 3);
  });

  test("§9.8: endpoints of a service port that fails again and again are counted once, and go with it", async () => {
    const model = newModel();
    const heal = model.rig.host.refuse(({ verb, kind }) =>
      verb === "Create" && kind === "LoadBalancer" ? HR.outOfMemory : undefined,
    );
    model.set(WEB, PODS);
    for (let attempts = 0; attempts < 5; attempts++) assert.equal((await model.rig.sync()).failures.length, 1);
    assert.equal(model.rig.host.documents("Endpoint").size, 2);
    heal();
    model.delete(WEB);
    await model.rig.sync();
    assert.deepEqual(model.rig.state(), []);
  });

  test("§9.10: after a restart, endpoints of vanished pods and cluster IPs go, on an overlay, too", async () => {
    const model = newModel({ type: "Overlay" });
    const other = port("other", "10.96.0.2");
    model.set(WEB, PODS);
    model.set(other, [remote("192.168.2.3")]);
    await model.rig.sync();
    await model.rig.close();
    model.delete(WEB);
    await model.rig.restart();
    await model.rig.sync();
    const left = [...model.rig.host.documents("Endpoint").values()].map((one) =>
      String(objectOf(listOf(one.IpConfigurations)[0]).IpAddress),
    );
    assert.deepEqual(left.sort(), ["10.96.0.2", "192.168.1.2", "192.168.2.3"]);
    model.delete(other);
    await model.rig.sync();
    assert.equal(
      model.rig.host.documents("Endpoint").size,
      1,
      "the endpoint of a cluster IP that was adopted goes, too",
    );
  });

  test("§9.12: a Local policy without a pod here does not bring unready pods to the cluster IP", async () => {
    const model = newModel();
    const unready = remote("10.180.1.3", { isReady: false, isServing: false });
    model.set(port("web", "10.96.0.1", { ...INGRESS, nodePort: 30080, externalPolicyLocal: true }), [...PODS, unready]);
    await model.rig.sync();
    assert.deepEqual(named(model), { "10.96.0.1:80": ["10.180.1.1", "10.180.1.2"] });
    assert.equal(model.rig.host.documents("Endpoint").size, 2);
  });

  test("§9.14: two endpoints of one address are named once", async () => {
    const model = newModel();
    const second = makeEndpoint("10.180.1.1", 8080, { text: "10.180.1.1:8080 again" });
    model.set(WEB, [...PODS, second]);
    await model.rig.sync();
    assert.deepEqual(named(model)["10.96.0.1:80"], ["10.180.1.1", "10.180.1.2"]);
  });

  test("§9.15: a changed annotation or target port changes what it is about, and nothing is torn down", async () => {
    const model = newModel();
    model.rig.host.addEndpoint({ addresses: ["10.180.0.10"] });
    const service = port("web", "10.96.0.1", INGRESS);
    const pods = [local("10.180.0.10"), ...PODS];
    model.set(service, pods);
    await model.rig.sync();
    const writes = async () => {
      model.rig.host.takeCalls();
      await model.rig.sync();
      return model.rig.host.takeWrites().map(({ verb, kind }) => `${verb} ${kind}`);
    };
    model.set({ ...service, preservesDestination: true });
    assert.deepEqual(await writes(), ["Modify LoadBalancer"], "the cluster IP keeps what it has");
    model.setEndpoints(
      service,
      pods.map(({ ip: address, isLocal }) => makeEndpoint(address, 9090, { isLocal })),
    );
    assert.deepEqual(await writes(), ["Modify LoadBalancer", "Modify LoadBalancer"]);
  });

  test("§9.17, §9.22: what never existed is not looked for, and a sync never runs beside another", async () => {
    const model = newModel({ canModify: false });
    model.set(WEB, PODS);
    // The in-memory HNS fails a call while another one is in progress.
    await Promise.all([model.rig.sync(), model.rig.sync()]);
    model.setEndpoints(WEB, []);
    await model.rig.sync();
    model.delete(WEB);
    await model.rig.sync();
    const about = model.rig.host.takeCalls().map(({ about: text }) => text);
    assert.ok(!about.some((text) => text.includes('\\"ID\\"')), "no look-up by an ID");
    assert.deepEqual(model.rig.state(), []);
  });

  test("§9.18: an object that vanishes while it is looked at is left out", async () => {
    const model = newModel();
    const { host } = model.rig;
    const gone = new Set([
      host.addEndpoint({ addresses: ["10.180.9.9"] }),
      host.addLoadBalancer({ PortMappings: [{ Protocol: 6, InternalPort: 80, ExternalPort: 99 }] }),
    ]);
    let opened = 0;
    host.refuse(({ verb, about }) => {
      if (verb !== "Open" || ![...gone].some((id) => id === about)) return undefined;
      opened++;
      return HR.elementNotFound;
    });
    model.set(WEB, PODS);
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.ok(opened >= gone.size);
    assert.deepEqual(Object.keys(named(model)).length, 3, "what is wanted, and the one that HNS still shows");
  });

  test("§9.20: affinity is not sent to an HNS that does not know it, and both are told once (kubernetes #62046, #93166)", async () => {
    const model = newModel({ config: { hasAffinity: false, hasDsr: false } });
    const service = port("web", "10.96.0.1", { ...INGRESS, sessionAffinity: "ClientIP", externalPolicyLocal: true });
    model.set(service, PODS);
    await model.rig.sync();
    await model.rig.sync({ full: true });
    assert.ok(model.rig.state().every((text) => !text.includes("DistributionType")));
    assert.deepEqual(named(model)["192.0.2.9:80"], ["10.180.1.1", "10.180.1.2"], "Local counts as Cluster");
    assert.deepEqual(model.rig.logged("warn"), [
      "externalTrafficPolicy Local counts as Cluster: this version of HNS has no direct server return",
      "sessionAffinity has no effect: this version of HNS does not have it",
    ]);
  });

  test("§9.23: a load balancer that could not be deleted and is wanted again stays", async () => {
    const model = newModel();
    model.set(WEB, PODS);
    await model.rig.sync();
    const before = [...model.rig.host.documents("LoadBalancer").keys()];
    const heal = model.rig.host.refuse(({ verb }) => (verb === "Delete" ? HR.hasReferences : undefined));
    model.delete(WEB);
    assert.equal((await model.rig.sync()).failures.length, 2);
    model.set(WEB, PODS);
    await model.rig.sync();
    heal();
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.deepEqual([...model.rig.host.documents("LoadBalancer").keys()], before);
    assert.equal(model.rig.host.documents("Endpoint").size, 2);
  });
});

describe("nodes that join an overlay", () => {
  const LATE = remote("192.168.3.3");
  const POLICY = {
    Type: "RemoteSubnetRoute",
    Settings: { DestinationPrefix: "192.168.3.0/24", ProviderAddress: "10.0.0.4" },
  };

  async function joined(options: MemoryHcnOptions = {}): Promise<TestModel> {
    const model = newModel({ type: "Overlay", hcn: options });
    const { rig } = model;
    model.set(WEB, [LATE, remote("192.168.2.3")]);
    await rig.sync();
    rig.watch();
    await rig.clock.settle();
    const [id, document] = [...rig.host.documents("Network")][0] ?? [];
    assert.ok(id !== undefined && document !== undefined);
    rig.host.setNetwork(id, { Policies: [...listOf(document.Policies), POLICY] });
    await rig.clock.advance(LOOK_MS);
    rig.host.takeCalls();
    return model;
  }

  test("are seen within five seconds, and endpoints that led astray are made again before they go", async () => {
    const model = await joined();
    const { rig } = model;
    assert.deepEqual(rig.asked, ["sync"]);
    assert.deepEqual((await rig.sync()).failures, []);
    const writes = rig.host.takeWrites();
    assert.deepEqual(
      writes.map(({ verb, kind }) => `${verb} ${kind}`),
      ["Create Endpoint", "Modify LoadBalancer", "Modify LoadBalancer", "Delete Endpoint"],
    );
    assert.match(writes[0]?.about ?? "", /"ProviderAddress":"10\.0\.0\.4".*"192\.168\.3\.3"/);
    const fresh = newModel({ type: "Overlay", host: rig.host });
    fresh.set(WEB, [LATE, remote("192.168.2.3")]);
    await fresh.rig.sync();
    assert.deepEqual(rig.host.takeWrites(), [], "another start finds all as it should be");
    rig.asked.splice(0);
    await rig.clock.advance(3 * LOOK_MS);
    assert.deepEqual(rig.asked, []);
    await rig.close();
  });

  test("a restart finds endpoints that lead astray", async () => {
    const model = await joined();
    await model.rig.restart();
    await model.rig.sync();
    const providers = [...model.rig.host.documents("Endpoint").values()].flatMap(({ Policies }) =>
      listOf(Policies).map((policy) => objectOf(objectOf(policy).Settings).ProviderAddress),
    );
    assert.deepEqual(providers.sort(), ["10.0.0.1", "10.0.0.3", "10.0.0.4"]);
  });

  test("where HNS takes no second endpoint of the address, the old one serves, and the failure says so", async () => {
    const model = await joined();
    const heal = model.rig.host.refuse(({ verb, kind }) =>
      verb === "Create" && kind === "Endpoint" ? HR.portAlreadyExists : undefined,
    );
    const before = named(model);
    const { failures } = await model.rig.sync();
    assert.match(failures[0]?.reason ?? "", /endpoint for 192\.168\.3\.3/);
    assert.deepEqual(named(model), before);
    heal();
    assert.deepEqual((await model.rig.sync()).failures, []);
    await model.rig.close();
  });

  test("where HNS tells other nodes than it was sent, nothing is made again", async () => {
    const model = await joined({ toldProvider: "10.9.9.9" });
    await model.rig.sync();
    assert.ok(model.rig.host.takeWrites().every(({ kind }) => kind !== "Endpoint"));
    await model.rig.close();
  });
});

describe("what operators report", () => {
  test("a source VIP that the CNI plugin has not reserved is refused with what to do, and the rest is served (kubernetes #100962, #123014, #123394)", async () => {
    const model = newModel({ type: "Overlay" });
    model.rig.host.refuse(({ verb, kind, about }) =>
      verb === "Create" && kind === "Endpoint" && about.includes("192.168.1.2") ? HR.reservedAddress : undefined,
    );
    model.set(WEB, PODS);
    const { failures } = await model.rig.sync();
    assert.equal(failures.length, 1);
    assert.equal(failures[0]?.subject, "source VIP 192.168.1.2");
    assert.match(failures[0]?.reason ?? "", /invalid or reserved.*the source VIP must be reserved by the CNI plugin/);
    assert.equal(model.rig.host.documents("LoadBalancer").size, 2);
  });

  test("so many load balancers without direct server return that dynamic ports run out are told once, with what to do (AKS #1375, kubernetes #98499)", async () => {
    for (const [enableDsr, told] of [
      [false, 1],
      [true, 0],
    ] as const) {
      const model = newModel({ config: { enableDsr } });
      for (let index = 0; index < 199; index++) model.set(port(`s${index}`, `10.96.1.${index}`), PODS);
      await model.rig.sync();
      assert.deepEqual(model.rig.logged("warn"), []);
      model.set(port("one-more", "10.96.0.9"), PODS);
      await model.rig.sync();
      model.delete(port("one-more", "10.96.0.9"));
      await model.rig.sync();
      model.set(port("one-more", "10.96.0.9"), PODS);
      await model.rig.sync();
      assert.equal(model.rig.logged("warn").length, told);
      if (told === 1) assert.match(model.rig.logged("warn")[0] ?? "", /64 dynamic ports.*enableDSR.*netsh int ipv4/);
    }
  });

  test("too many endpoints for this Windows are a failure of that service alone (kubernetes #98680, #135518)", async () => {
    const model = newModel();
    refuseOver64Endpoints(model);
    const many = Array.from({ length: 65 }, (_, index) => remote(`10.180.2.${index}`));
    model.set(port("huge", "10.96.0.2"), many);
    model.set(WEB, PODS);
    const { failures } = await model.rig.sync();
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      ["ns/huge:p"],
    );
    assert.match(
      failures[0]?.reason ?? "",
      /perhaps too many endpoints for this Windows.*frontend tcp 10\.96\.0\.2:80/,
    );
    assert.equal(model.rig.host.documents("LoadBalancer").size, 2);
  });

  test("a Service that gets too many endpoints keeps those that it has, where nothing is changed in place (kubernetes #98680)", async () => {
    const model = newModel({ canModify: false });
    refuseOver64Endpoints(model);
    const huge = port("huge", "10.96.0.2");
    const many = Array.from({ length: 66 }, (_, index) => remote(`10.180.2.${index}`));
    const served = () => named(model)["10.96.0.2:80"]?.length;
    model.set(huge, many.slice(0, 64));
    await model.rig.sync();
    // One of the served endpoints is removed.
    model.setEndpoints(huge, many.slice(1));
    assert.match((await model.rig.sync()).failures[0]?.reason ?? "", /perhaps too many endpoints for this Windows/);
    assert.equal(served(), 63);
    model.rig.host.takeWrites();
    assert.equal((await model.rig.sync()).failures.length, 1, "it is still told");
    assert.deepEqual(model.rig.host.takeWrites(), [], "and cuts nobody off again");
    await model.rig.clock.advance(600_000);
    await model.rig.sync();
    assert.ok(model.rig.host.takeWrites().length > 0, "it is tried again after ten minutes");
    assert.equal(served(), 63);
    model.setEndpoints(huge, many.slice(2));
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.equal(served(), 64);
  });

  test("topology hints count (kubernetes #123823, #137953), source ranges do not, which is told", async () => {
    const model = newModel();
    model.driver.zone = "a";
    const service = port("web", "10.96.0.1", { ...INGRESS, loadBalancerSourceRanges: ["192.0.2.0/24" as never] });
    model.set(service, [remote("10.180.1.1", { zoneHints: ["a"] }), remote("10.180.1.2", { zoneHints: ["b"] })]);
    await model.rig.sync();
    assert.deepEqual(named(model), { "10.96.0.1:80": ["10.180.1.1"], "192.0.2.9:80": ["10.180.1.1"] });
    assert.deepEqual(model.rig.logged("warn"), [
      "loadBalancerSourceRanges has no effect on Windows: HNS cannot tell clients apart",
    ]);
  });
});
