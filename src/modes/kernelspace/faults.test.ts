/** Failures of HNS: clear messages, nothing lost, and quick retries. Reference windows-practice.md §8, §9. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { ip } from "../../model/testing/records.ts";
import { listOf } from "./hcn/json-fields.ts";
import { LOOK_MS, NETWORK, NODE_IPS, newHost, newModel, SYNC_PERIOD_MS } from "./testing/kernelspace-rig.ts";

const WEB = port("web", "10.96.0.1", { nodePort: 30080 });
const PODS = [remote("10.180.1.1"), remote("10.180.1.2")];

describe("HNS as a whole", () => {
  test("without the network, a sync says what to look at, and the next one serves", async () => {
    const model = newModel();
    const [network] = model.rig.host.documents("Network");
    assert.ok(network !== undefined);
    model.rig.host.removeNetwork(network[0]);
    model.set(WEB, PODS);
    await assert.rejects(model.rig.sync(), /HNS has no network "cbr0": check .*--network-name.*CNI plugin/);
    model.rig.host.addNetwork(NETWORK, "L2Bridge");
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.equal(model.rig.host.documents("LoadBalancer").size, 2);
  });

  test("while it is down a sync makes one call, and afterwards everything is as it was", async () => {
    const model = newModel();
    model.set(WEB, PODS);
    await model.rig.sync();
    const before = model.rig.state();
    const start = model.rig.host.stop();
    model.rig.host.takeCalls();
    model.setEndpoints(WEB, PODS.slice(0, 1));
    await assert.rejects(model.rig.sync(), /The HNS service is stopping \(0x803b0020\)/);
    assert.equal(model.rig.host.takeCalls().length, 1);
    start();
    await model.rig.sync();
    model.setEndpoints(WEB, PODS);
    await model.rig.sync();
    assert.deepEqual(model.rig.state(), before);
    assert.equal(model.rig.host.openHandles, 0);
  });

  test("another program's load balancer stays, also when its endpoint cannot be read or is new", async () => {
    const model = newModel();
    const { host } = model.rig;
    const network = host.addNetwork("docker", "NAT");
    const held = (address: string) => {
      const theirs = host.addEndpoint({ network, addresses: [address] });
      const mapping = { Protocol: 6, InternalPort: 80, ExternalPort: 30080 };
      return {
        theirs,
        loadBalancer: host.addLoadBalancer({ HostComputeEndpoints: [theirs], PortMappings: [mapping] }),
      };
    };
    const { theirs, loadBalancer } = held("172.17.0.2");
    const heal = host.refuse(({ verb, about }) =>
      verb === "Open" && about === theirs ? HR.elementNotFound : undefined,
    );
    model.set(WEB, PODS);
    await model.rig.sync();
    heal();
    await model.rig.sync();
    assert.ok(host.documents("LoadBalancer").has(loadBalancer));
    host.loseLoadBalancer(loadBalancer);
    const second = held("172.17.0.3");
    await model.rig.sync();
    const { failures } = await model.rig.sync();
    assert.match(failures[0]?.reason ?? "", /of another program answers there/);
    assert.ok(host.documents("LoadBalancer").has(second.loadBalancer));
  });

  test("when it goes in the middle of a sync, the next one completes that", async () => {
    for (let calls = 1; calls < 30; calls++) {
      const model = newModel();
      let left = calls;
      const heal = model.rig.host.refuse(() => (left-- > 0 ? undefined : HR.managerStopped));
      model.set(WEB, PODS);
      await model.rig.sync().catch(() => {});
      heal();
      await model.rig.sync();
      const fresh = newModel();
      fresh.set(WEB, PODS);
      await fresh.rig.sync();
      assert.deepEqual(model.rig.state(), fresh.rig.state(), `after ${calls} calls`);
      assert.equal(model.rig.host.openHandles, 0);
    }
  });

  test("access denied ends the sync at once and says who must run it", async () => {
    const model = newModel();
    model.set(WEB, PODS);
    model.rig.host.refuse(({ verb }) => (verb === "Create" ? HR.accessDenied : undefined));
    await assert.rejects(model.rig.sync(), /Access is denied: run as Administrator or as a HostProcess container/);
    assert.equal(model.rig.host.takeWrites().length, 1);
  });

  test("load balancers that come back late are adopted, not refused as taken (kubernetes #139519)", async () => {
    const model = newModel();
    const { host } = model.rig;
    model.set(WEB, PODS);
    await model.rig.sync();
    const back = [...host.documents("LoadBalancer")];
    await model.rig.restart();
    for (const [id] of back) host.loseLoadBalancer(id);
    // They come back after they were read.
    const heal = host.refuse(({ verb, kind }) => {
      if (verb === "Create" && kind === "LoadBalancer")
        for (const [, document] of back.splice(0)) host.addLoadBalancer(document);
      return undefined;
    });
    assert.deepEqual((await model.rig.sync()).failures, []);
    heal();
    assert.equal(host.documents("LoadBalancer").size, 2);
  });

  for (const version of [0, 1, 3]) {
    test(`a network of schema version ${version} is read, which is told once (calico #8465)`, async () => {
      const host = newHost();
      for (const document of host.documents("Network").values()) {
        Object.assign(document, { SchemaVersion: { Major: version, Minor: 0 } });
      }
      const model = newModel({ host });
      model.set(WEB, PODS);
      for (const full of [true, true]) assert.deepEqual((await model.rig.sync({ full })).failures, []);
      assert.deepEqual(model.rig.logged("warn"), [
        "An HNS object has another schema version than requested; it is read nevertheless",
      ]);
    });
  }

  test("a document that cannot be read is told once, left alone, and named where it is in the way", async () => {
    const model = newModel();
    const { rig } = model;
    const mapping = { Protocol: 6, InternalPort: 80, ExternalPort: 30080 };
    const unread = rig.host.addLoadBalancer({ ID: "none", PortMappings: [mapping] });
    model.set(WEB, PODS);
    const { failures } = await rig.sync();
    assert.equal(failures.length, 1);
    assert.match(failures[0]?.reason ?? "", new RegExp(`perhaps the load balancer ${unread} has it, whose document`));
    rig.watch();
    for (let syncs = 0; syncs < 3; syncs++) {
      await rig.clock.advance(2 * LOOK_MS);
      await rig.sync();
    }
    await rig.sync({ full: true });
    assert.deepEqual(rig.logged("warn"), ["An HNS object is left alone because its document has no ID"]);
    assert.ok(rig.host.has("LoadBalancer", unread));
    assert.equal(rig.host.documents("LoadBalancer").size, 2, "the cluster IP is served");
    await rig.close();
  });

  test("an object that HNS lists and never opens costs no other Service, and counts as soon as it opens", async () => {
    const model = newModel();
    const { rig } = model;
    const pod = rig.host.addEndpoint({ addresses: ["10.180.0.1"] });
    const heal = rig.host.refuse(({ verb, about }) => (verb === "Open" && about === pod ? 0x803b_0007 : undefined));
    const here = port("here", "10.96.0.2");
    model.set(WEB, PODS);
    model.set(here, [local("10.180.0.1")]);
    for (let syncs = 1; syncs < 5; syncs++) await assert.rejects(rig.sync(), /The switch port was not found/);
    assert.deepEqual(
      (await rig.sync()).failures.map(({ subject }) => subject),
      ["ns/here:p"],
    );
    assert.equal(rig.host.documents("LoadBalancer").size, 2);
    assert.equal(rig.logged("warn").length, 1);
    assert.match(rig.logged("warn")[0] ?? "", /left alone because its document cannot be read: HcnOpenEndpoint failed/);
    rig.watch();
    heal();
    await rig.clock.advance(LOOK_MS);
    assert.ok(rig.asked.includes("sync"));
    assert.deepEqual((await rig.sync()).failures, []);
    assert.equal(rig.host.documents("LoadBalancer").size, 3);
    await rig.close();
  });

  test("documents that cannot be read are left alone", async () => {
    const model = newModel();
    const { host } = model.rig;
    const future = host.addLoadBalancer({ SchemaVersion: { Major: 3, Minor: 0 }, PortMappings: "?" });
    const bare = host.addLoadBalancer({ FrontendVIPs: ["10.9.9.9"] });
    model.set(WEB, PODS);
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.ok(host.has("LoadBalancer", future) && host.has("LoadBalancer", bare));
  });
});

describe("changes in place", () => {
  test("an HNS that says yes and does nothing is found out, and load balancers are replaced (kubernetes #131466)", async () => {
    const model = newModel({ hcn: { modifiesSilently: true } });
    model.set(WEB, PODS);
    await model.rig.sync();
    model.setEndpoints(WEB, PODS.slice(1));
    assert.deepEqual((await model.rig.sync()).failures, []);
    const fresh = newModel();
    fresh.set(WEB, PODS.slice(1));
    await fresh.rig.sync();
    assert.deepEqual(model.rig.state(), fresh.rig.state());
    assert.equal(model.rig.logged("warn").length, 1);
    model.rig.host.takeCalls();
    model.setEndpoints(WEB, PODS);
    await model.rig.sync();
    assert.ok(!model.rig.host.takeWrites().some(({ verb }) => verb === "Modify"));
  });

  test("an HNS without them is asked once", async () => {
    const model = newModel({ hcn: { version: { major: 11, minor: 10 } } });
    model.set(WEB, PODS);
    await model.rig.sync();
    model.rig.host.takeCalls();
    model.setEndpoints(WEB, PODS.slice(1));
    await model.rig.sync();
    const verbs = model.rig.host.takeWrites().map(({ verb, kind }) => `${verb} ${kind}`);
    assert.deepEqual(verbs, [
      ...["Modify LoadBalancer", "Delete LoadBalancer", "Create LoadBalancer"],
      ...["Delete LoadBalancer", "Create LoadBalancer", "Delete Endpoint"],
    ]);
  });

  test("an unchanged set of endpoints touches no load balancer, though another one changes (kubernetes #113842, #124092)", async () => {
    const model = newModel({ canModify: false });
    const other = port("other", "10.96.0.2");
    model.set(WEB, PODS);
    model.set(other, PODS);
    await model.rig.sync();
    model.rig.host.takeCalls();
    model.setEndpoints(other, PODS.slice(1));
    await model.rig.sync();
    assert.equal(model.rig.host.takeWrites().length, 2);
  });

  test("what HNS words in its own way is written once", async () => {
    const model = newModel({ hcn: { filledSourceVip: "10.0.0.9" }, type: "Overlay", config: { sourceVip: undefined } });
    model.set(WEB, PODS);
    await model.rig.sync();
    model.rig.host.takeCalls();
    await model.rig.sync({ full: true });
    assert.deepEqual(model.rig.host.takeWrites(), []);
  });
});

describe("single objects", () => {
  test("a pod without endpoint fails its Service by name, the others serve, and it is served when the endpoint comes", async () => {
    const model = newModel();
    const { rig } = model;
    model.set(WEB, [local("10.180.0.10"), ...PODS]);
    model.set(port("other", "10.96.0.2"), PODS);
    const { failures } = await rig.sync();
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      [WEB.name.text],
    );
    assert.match(
      failures[0]?.reason ?? "",
      /no endpoint for the pod 10\.180\.0\.10 of this node; the CNI plugin has to create it/,
    );
    assert.equal(rig.host.documents("LoadBalancer").size, 3);
    rig.watch();
    rig.host.addEndpoint({ addresses: ["10.180.0.10"] });
    await rig.clock.advance(1_000);
    assert.deepEqual(rig.asked, ["sync"], "within a second");
    assert.deepEqual((await rig.sync()).failures, []);
    await rig.close();
  });

  test("an address of the node itself is told once and is no failure, and the others of its Service serve", async () => {
    const model = newModel();
    const { rig } = model;
    model.set(WEB, [local(NODE_IPS.IPv4), ...PODS]);
    for (const full of [true, false, true]) assert.deepEqual((await rig.sync({ full })).failures, []);
    assert.deepEqual(rig.logged("warn"), [
      "HNS has no endpoint for an address of the node itself, so a Service cannot lead to it",
    ]);
    const [loadBalancer] = rig.host.documents("LoadBalancer").values();
    assert.equal(listOf(loadBalancer?.HostComputeEndpoints).length, PODS.length);
    rig.host.takeCalls();
    await rig.sync();
    assert.deepEqual(rig.host.takeCalls(), [], "an idle sync asks nothing");
    rig.watch();
    rig.host.addEndpoint({ addresses: [NODE_IPS.IPv4] });
    await rig.clock.advance(LOOK_MS);
    await rig.sync();
    const [now] = rig.host.documents("LoadBalancer").values();
    assert.equal(
      listOf(now?.HostComputeEndpoints).length,
      PODS.length + 1,
      "an endpoint that comes after all is served",
    );
    await rig.close();
  });

  test("retries come after 1, 2, 4 … seconds, up to the sync period, and end with success (§9.19)", async () => {
    const model = newModel();
    const { rig } = model;
    const heal = rig.host.refuse(({ verb, kind }) =>
      verb === "Create" && kind === "LoadBalancer" ? HR.outOfMemory : undefined,
    );
    rig.watch();
    model.set(WEB, PODS);
    for (const seconds of [1, 2, 4, 8, 16, 30, 30]) {
      assert.equal((await rig.sync()).failures.length, 1);
      rig.asked.splice(0);
      await rig.clock.advance(seconds * 1_000 - 1);
      assert.deepEqual(rig.asked, [], `${seconds} s`);
      await rig.clock.advance(1);
      assert.deepEqual(rig.asked, ["sync"], `${seconds} s`);
    }
    heal();
    assert.deepEqual((await rig.sync()).failures, []);
    rig.asked.splice(0);
    await rig.clock.advance(10 * SYNC_PERIOD_MS);
    assert.deepEqual(rig.asked, []);
    await rig.close();
  });

  test("external and load-balancer IPs are tried again like all else (§9.7)", async () => {
    const model = newModel();
    const heal = model.rig.host.refuse(({ verb, about }) =>
      verb === "Create" && about.includes("192.0.2.9") ? HR.outOfMemory : undefined,
    );
    model.set(port("web", "10.96.0.1", { externalIPs: [ip("192.0.2.9")] }), PODS);
    assert.equal((await model.rig.sync()).failures.length, 1);
    heal();
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.equal(model.rig.host.documents("LoadBalancer").size, 2);
  });

  test("a health check whose port is taken fails no Service (community #8883)", async () => {
    const model = newModel({ config: { healthPort: 10256 }, rootName: "root" });
    model.rig.host.addEndpoint({ name: "root", addresses: ["10.180.0.1"] });
    model.rig.host.holdPort(6, 10256);
    model.set(port("web", "10.96.0.1", { loadBalancerVIPs: [ip("192.0.2.9")] }), PODS);
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.equal(model.rig.logged("warn").length, 1);
  });

  test("two ports of one Service share a health check, which stays while one is there (§9.4), and speaks TCP (§9.6)", async () => {
    const dns = port("dns", "10.96.0.1", { loadBalancerVIPs: [ip("192.0.2.9")], protocol: "UDP", port: 53 });
    const tcp = port("dns", "10.96.0.1", { loadBalancerVIPs: [ip("192.0.2.9")], port: 53 });
    for (const [gone, left] of [
      [tcp, 17],
      [dns, 6],
    ] as const) {
      const model = newModel({ config: { healthPort: 10256 }, rootName: "root" });
      const { host } = model.rig;
      host.addEndpoint({ name: "root", addresses: ["10.180.0.1"] });
      model.set(dns, PODS);
      model.set(tcp, PODS);
      await model.rig.sync();
      assert.equal(host.documents("LoadBalancer").size, 5);
      model.delete(gone);
      await model.rig.sync();
      const mappings = [...host.documents("LoadBalancer").values()].map((one) => JSON.stringify(one.PortMappings));
      const expected = [
        `[{"Protocol":${left},"InternalPort":8080,"ExternalPort":53,"Flags":16}]`,
        `[{"Protocol":${left},"InternalPort":8080,"ExternalPort":53}]`,
        '[{"Protocol":6,"InternalPort":10256,"ExternalPort":10256}]',
      ];
      assert.deepEqual(mappings.sort(), expected.sort());
    }
  });

  test("several target ports: the most frequent is served, the rest left out and told once (kubernetes #132646, #132647, #69336, #91783, §9.14)", async () => {
    const model = newModel();
    const { rig } = model;
    model.set(WEB, [
      ...PODS,
      { ...remote("10.180.1.3"), port: 9090, text: "10.180.1.3:9090" },
      { ...remote("10.180.1.1"), port: 9090, text: "10.180.1.1:9090" },
    ]);
    model.setEndpoints(WEB, [
      ...PODS,
      remote("10.180.1.4"),
      { ...remote("10.180.1.3"), port: 9090, text: "10.180.1.3:9090" },
    ]);
    await rig.sync();
    await rig.sync({ full: true });
    assert.deepEqual(rig.logged("warn").length, 1);
    for (const { HostComputeEndpoints: named } of rig.host.documents("LoadBalancer").values()) {
      assert.equal(Array.isArray(named) && named.length, 3);
    }
    assert.equal(rig.host.documents("Endpoint").size, 3, "what is left out has no endpoint");
  });

  test("with every pod terminating, all frontends go on where some still serve (§9.13, kubernetes #113841), and none has dead ones", async () => {
    const model = newModel();
    const ending = { isReady: false, isTerminating: true } as const;
    model.set(WEB, PODS);
    await model.rig.sync();
    model.setEndpoints(WEB, [remote("10.180.1.1", ending), remote("10.180.1.2", { ...ending, isServing: false })]);
    await model.rig.sync();
    const all = [...model.rig.host.documents("LoadBalancer").values()];
    assert.deepEqual(
      all.map(({ HostComputeEndpoints: named }) => Array.isArray(named) && named.length),
      [1, 1],
    );
    model.setEndpoints(WEB, [remote("10.180.1.2", { ...ending, isServing: false })]);
    await model.rig.sync();
    assert.deepEqual(model.rig.state(), []);
  });

  test("an overlay whose cluster IPs have endpoints keeps them through every change of pods (§9.9)", async () => {
    const model = newModel({ type: "Overlay" });
    model.set(WEB, PODS);
    await model.rig.sync();
    model.rig.host.takeCalls();
    model.setEndpoints(WEB, PODS.slice(1));
    await model.rig.sync();
    const deleted = model.rig.host.takeWrites().filter(({ verb }) => verb === "Delete");
    assert.equal(deleted.length, 1);
  });

  test("a node that joins the overlay is known with the next change", async () => {
    const model = newModel({ type: "Overlay" });
    const { host } = model.rig;
    model.set(WEB, [remote("192.168.3.3")]);
    await model.rig.sync();
    const [network] = host.documents("Network").keys();
    assert.ok(network !== undefined);
    const Settings = { DestinationPrefix: "192.168.3.0/24", ProviderAddress: "10.0.0.4" };
    host.setNetwork(network, { Policies: [{ Type: "RemoteSubnetRoute", Settings }] });
    model.setEndpoints(WEB, [remote("192.168.3.3"), remote("192.168.3.4")]);
    await model.rig.sync();
    const sources = [...host.documents("LoadBalancer").values()].map(({ SourceVIP }) => SourceVIP);
    assert.deepEqual([...new Set(sources)], ["192.168.1.2"], "no longer the node's own address");
  });

  test("names of Services never reach HNS, so nothing in them can hurt it; messages have them as they are", async () => {
    const hostile = 'CON/nul.txt:p"\\\n\u0000{};$(calc)..\\🐳';
    const model = newModel();
    const name = { ...WEB.name, text: hostile, service: hostile, key: hostile };
    model.set({ ...WEB, name }, PODS);
    const heal = model.rig.host.refuse(({ verb, kind }) =>
      verb === "Create" && kind === "LoadBalancer" ? HR.outOfMemory : undefined,
    );
    const { failures } = await model.rig.sync();
    heal();
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      [hostile],
    );
    assert.deepEqual((await model.rig.sync()).failures, []);
    const sent = model.rig.host.takeCalls().map(({ about }) => about);
    for (const part of ["CON", "nul", "calc", "🐳"]) assert.ok(!sent.some((text) => text.includes(part)), part);
    const fresh = newModel();
    fresh.set(WEB, PODS);
    await fresh.rig.sync();
    assert.deepEqual(model.rig.state(), fresh.rig.state());
  });

  test("an idle sync calls nothing", async () => {
    const model = newModel();
    model.set(WEB, PODS);
    await model.rig.sync();
    model.rig.host.takeCalls();
    await model.rig.sync();
    assert.deepEqual(model.rig.host.takeCalls(), []);
  });
});
