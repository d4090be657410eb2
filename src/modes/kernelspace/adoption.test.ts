/** State from before the start and changes by other programs: kept, adopted, repaired or left alone. Reference windows-practice.md §8, §9. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ip } from "../../model/testing/records.ts";
import { cleanUpHost } from "./runtime.ts";
import {
  HOST_MAC,
  LOOK_MS,
  NETWORK,
  newModel,
  type RigOptions,
  SOURCE_VIPS,
  type TestModel,
} from "./testing/kernelspace-rig.ts";

const WEB = port("web", "10.96.0.1", { nodePort: 30080, loadBalancerVIPs: [ip("192.0.2.9")] });
const PODS = [remote("10.180.1.1"), remote("10.180.1.2")];

async function served(options?: RigOptions): Promise<TestModel> {
  const model = newModel(options);
  model.rig.host.addEndpoint({ addresses: ["10.180.0.10"] });
  model.set(WEB, [local("10.180.0.10"), ...PODS]);
  await model.rig.sync();
  model.rig.host.takeCalls();
  return model;
}

/** Kubernetes #109162, #109124, #78225. */
describe("a restart", () => {
  for (const [name, options] of [
    ["L2Bridge", {}],
    ["overlay", { type: "Overlay", config: { enableDsr: true } }],
    ["an HNS that fills in the source VIP", { hcn: { filledSourceVip: "10.0.0.1" } }],
    ["IPv6", { family: "IPv6" }],
  ] as const satisfies readonly (readonly [string, RigOptions])[]) {
    test(`keeps all load balancers and writes nothing: ${name}`, async () => {
      const model = newModel(options);
      const isIpv6 = "family" in options;
      model.set(
        isIpv6 ? port("web", "fd00::1", { nodePort: 30080 }) : WEB,
        isIpv6 ? [remote("fd01::1"), remote("fd01::2")] : PODS,
      );
      await model.rig.sync();
      const before = model.rig.state();
      assert.ok(before.length > 3);
      await model.rig.restart();
      model.rig.host.takeCalls();
      assert.deepEqual((await model.rig.sync()).failures, []);
      assert.deepEqual(model.rig.host.takeWrites(), []);
      assert.deepEqual(model.rig.state(), before);
    });
  }

  test("finds what went meanwhile, and removes its load balancers and endpoints", async () => {
    const model = await served();
    await model.rig.close();
    model.delete(WEB);
    await model.rig.restart();
    await model.rig.sync();
    assert.equal(model.rig.state().length, 1, "the pod's own endpoint");
  });

  test("recognises a load balancer whose endpoints are all gone", async () => {
    const model = newModel();
    const { host } = model.rig;
    const pod = host.addEndpoint({ addresses: ["10.180.0.10"] });
    const mapping = { Protocol: 6, InternalPort: 80, ExternalPort: 80 };
    const inside = host.addLoadBalancer({
      HostComputeEndpoints: [pod],
      FrontendVIPs: ["10.96.0.7"],
      PortMappings: [mapping],
    });
    const outside = host.addLoadBalancer({
      HostComputeEndpoints: [pod],
      FrontendVIPs: ["192.0.2.7"],
      PortMappings: [mapping],
    });
    const nodePort = host.addLoadBalancer({
      HostComputeEndpoints: [pod],
      PortMappings: [{ ...mapping, ExternalPort: 30001, Flags: 18 }],
    });
    host.removeEndpoint(pod);
    model.driver.serviceCIDRs = ["10.96.0.0/12"];
    await model.rig.sync();
    assert.deepEqual(
      [inside, outside, nodePort].map((id) => host.has("LoadBalancer", id)),
      [false, true, false],
    );
    assert.equal(model.rig.logged("warn").length, 1, "what stays is told");
  });

  test("is not needed to know what this process has made, though all its endpoints are gone", async () => {
    const model = await served();
    const { host } = model.rig;
    for (const id of host.documents("Endpoint").keys()) host.removeEndpoint(id);
    model.delete(WEB);
    await model.rig.sync({ full: true });
    assert.deepEqual(model.rig.state(), []);
    assert.deepEqual(model.rig.logged("warn"), []);
  });

  test("applies a changed affinity or DSR setting to load balancers that are there (§9.3)", async () => {
    const model = await served();
    await model.rig.close();
    model.set({ ...WEB, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 10 });
    await model.rig.restart();
    await model.rig.sync();
    const mappings = [...model.rig.host.documents("LoadBalancer").values()].map(({ PortMappings }) =>
      JSON.stringify(PortMappings),
    );
    for (const mapping of mappings) assert.match(mapping, /"DistributionType":2/);
  });
});

describe("other programs", () => {
  test("load balancers to other networks, and unusual ones, are never touched (§9.1)", async () => {
    const model = newModel();
    const { host } = model.rig;
    const other = host.addNetwork("docker", "NAT");
    const theirs = host.addEndpoint({ network: other, addresses: ["172.17.0.2"] });
    const ours = host.addEndpoint({ addresses: ["10.180.0.10"] });
    const mapping = { Protocol: 6, InternalPort: 80, ExternalPort: 8080 };
    const kept = [
      host.addLoadBalancer({ HostComputeEndpoints: [theirs], PortMappings: [mapping] }),
      host.addLoadBalancer({
        HostComputeEndpoints: [ours],
        FrontendVIPs: ["10.1.1.1", "10.1.1.2"],
        PortMappings: [mapping],
      }),
      host.addLoadBalancer({
        HostComputeEndpoints: [ours],
        FrontendVIPs: ["10.1.1.3"],
        PortMappings: [mapping, { ...mapping, ExternalPort: 81 }],
      }),
      host.addLoadBalancer({
        HostComputeEndpoints: [ours],
        FrontendVIPs: ["10.1.1.4"],
        PortMappings: [{ ...mapping, Flags: 1 }],
      }),
    ];
    model.set(WEB, PODS);
    await model.rig.sync();
    await model.rig.sync({ full: true });
    for (const id of kept) assert.ok(host.has("LoadBalancer", id));
    assert.ok(host.has("Endpoint", theirs));
  });

  test("a load balancer of another program at a Service's frontend is left alone, and the failure names it", async () => {
    const model = newModel();
    const { host } = model.rig;
    const theirs = host.addEndpoint({ network: host.addNetwork("docker", "NAT"), addresses: ["172.17.0.2"] });
    const rival = host.addLoadBalancer({
      HostComputeEndpoints: [theirs],
      PortMappings: [{ Protocol: 6, InternalPort: 1, ExternalPort: 30080 }],
    });
    model.set(WEB, PODS);
    const { failures } = await model.rig.sync();
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      [WEB.name.text],
    );
    assert.match(failures[0]?.reason ?? "", new RegExp(`${rival} of another program .*; frontend tcp \\*:30080`));
    assert.equal(host.documents("LoadBalancer").size, 3, "cluster IP and ingress are served");
    host.loseLoadBalancer(rival);
    assert.deepEqual((await model.rig.sync({ full: true })).failures, []);
  });

  test("a socket of the host on a node port is named as such", async () => {
    const model = newModel();
    model.rig.host.holdPort(6, 30080);
    model.set(WEB, PODS);
    const { failures } = await model.rig.sync();
    assert.match(failures[0]?.reason ?? "", /a socket of the host or a reserved port range holds it/);
  });

  test("load balancers that vanish are found with three calls, and made again alone (kubernetes #110849)", async () => {
    const model = await served();
    const { rig } = model;
    rig.watch();
    await rig.clock.settle();
    rig.host.takeCalls();
    await rig.clock.advance(LOOK_MS);
    assert.equal(rig.host.takeCalls().length, 3);
    assert.deepEqual(rig.asked, []);
    const [lost] = rig.host.documents("LoadBalancer").keys();
    assert.ok(lost !== undefined);
    rig.host.loseLoadBalancer(lost);
    const before = new Set(rig.host.documents("LoadBalancer").keys());
    await rig.clock.advance(LOOK_MS);
    assert.deepEqual(rig.asked, [{ ports: new Set([WEB.name.key]) }]);
    rig.host.takeCalls();
    await rig.sync();
    assert.equal(rig.host.takeWrites().length, 1);
    for (const id of before) assert.ok(rig.host.has("LoadBalancer", id));
    assert.equal(rig.host.documents("LoadBalancer").size, 3);
    await rig.close();
  });

  test("an endpoint that was deleted is made again, and load balancers name the new one", async () => {
    const model = await served();
    const { rig } = model;
    const expected = rig.state();
    const [gone] = [...rig.host.documents("Endpoint")].find(([, { Flags }]) => Flags === 1) ?? [];
    assert.ok(gone !== undefined);
    rig.host.removeEndpoint(gone);
    rig.watch();
    await rig.clock.advance(LOOK_MS);
    assert.deepEqual(rig.asked, ["sync"]);
    await rig.sync();
    assert.deepEqual(rig.state(), expected);
    await rig.close();
  });

  test("a remote endpoint that shadows a new pod's goes after load balancers were led to the pod's (§9.11, kubernetes #130963)", async () => {
    const model = newModel();
    const { host } = model.rig;
    model.set(WEB, [remote("10.180.0.11")]);
    await model.rig.sync();
    const own = host.addEndpoint({ addresses: ["10.180.0.11"] });
    host.takeCalls();
    model.setEndpoints(WEB, [local("10.180.0.11")]);
    await model.rig.sync();
    assert.deepEqual([...host.documents("Endpoint").keys()], [own]);
    const kinds = host.takeWrites().map(({ verb, kind }) => `${verb} ${kind}`);
    assert.deepEqual(kinds, [...new Array(3).fill("Modify LoadBalancer"), "Delete Endpoint"]);
  });
});

describe("--cleanup", () => {
  test("removes what kube-proxy made, and nothing else", async () => {
    for (const options of [{}, { type: "Overlay" }] as const satisfies readonly RigOptions[]) {
      const model = await served(options);
      const { host } = model.rig;
      const theirs = host.addEndpoint({ network: host.addNetwork("docker", "NAT"), addresses: ["172.17.0.2"] });
      const mapping = { Protocol: 6, InternalPort: 80, ExternalPort: 8080 };
      host.addLoadBalancer({ HostComputeEndpoints: [theirs], PortMappings: [mapping] });
      const cleanUp = () =>
        cleanUpHost(host, {
          networkName: NETWORK,
          hostMacs: new Set([HOST_MAC]),
          sourceVip: ip(SOURCE_VIPS.IPv4),
          log: silentLogger,
        });
      assert.equal(await cleanUp(), true);
      assert.equal(host.documents("LoadBalancer").size, 1);
      const remotes = [...host.documents("Endpoint").values()].filter(({ Flags }) => Flags === 1);
      assert.deepEqual(remotes, []);
      assert.ok(host.has("Endpoint", theirs));
      assert.equal(host.documents("Endpoint").size, 2, "the pod's own and theirs: the source VIP went, too");
      host.takeCalls();
      assert.equal(await cleanUp(), true);
      assert.deepEqual(host.takeWrites(), []);
    }
  });

  test("leaves a source VIP that the CNI plugin has reserved", async () => {
    const model = newModel({ type: "Overlay" });
    const { host } = model.rig;
    const reserved = host.addEndpoint({ name: "sourcevip", addresses: [SOURCE_VIPS.IPv4], mac: "00-11-22-33-44-55" });
    model.set(WEB, PODS);
    await model.rig.sync();
    const options = { networkName: NETWORK, hostMacs: new Set([HOST_MAC]), sourceVip: ip(SOURCE_VIPS.IPv4) };
    assert.equal(await cleanUpHost(host, { ...options, log: silentLogger }), true);
    assert.deepEqual([...host.documents("Endpoint").keys()], [reserved]);
  });

  test("without the network does nothing, and fails where HNS does not answer", async () => {
    const { host } = (await served()).rig;
    const options = { networkName: "other", hostMacs: new Set([HOST_MAC]), sourceVip: undefined, log: silentLogger };
    assert.equal(await cleanUpHost(host, options), true);
    assert.deepEqual(host.takeWrites(), []);
    host.stop();
    await assert.rejects(cleanUpHost(host, options), /The HNS service is stopping/);
  });

  test("removes the rest although an endpoint cannot be read, and fails", async () => {
    const { host } = (await served()).rig;
    const [broken] = host.documents("Endpoint").keys();
    host.refuse((call) => (call.verb === "Open" && call.about === broken ? HR.outOfMemory : undefined));
    const lines: LogLine[] = [];
    const options = { networkName: NETWORK, hostMacs: new Set([HOST_MAC]), sourceVip: undefined };
    assert.equal(await cleanUpHost(host, { ...options, log: recordingLogger(lines) }), false);
    assert.equal(host.documents("LoadBalancer").size, 0);
    assert.equal([...host.documents("Endpoint").values()].filter(({ Flags }) => Flags === 1).length, 0);
    assert.match(String(lines[0]?.message), /left alone/);
  });

  test("leaves the endpoints to the next run while a load balancer cannot be read, and fails", async () => {
    const model = newModel();
    model.set(WEB, [remote("10.180.1.1")]);
    await model.rig.sync();
    const { host } = model.rig;
    const [broken] = host.documents("LoadBalancer").keys();
    const heal = host.refuse(({ verb, about }) => (verb === "Open" && about === broken ? HR.outOfMemory : undefined));
    const options = { networkName: NETWORK, hostMacs: new Set([HOST_MAC]), sourceVip: undefined, log: silentLogger };
    assert.equal(await cleanUpHost(host, options), false);
    assert.deepEqual([...host.documents("LoadBalancer").keys()], [broken]);
    heal();
    assert.equal(await cleanUpHost(host, options), true);
    assert.deepEqual([host.documents("LoadBalancer").size, host.documents("Endpoint").size], [0, 0]);
  });

  test("says when HNS keeps something", async () => {
    const { rig } = await served();
    rig.host.refuse(({ verb, kind }) => (verb === "Delete" && kind === "LoadBalancer" ? HR.outOfMemory : undefined));
    const options = {
      networkName: NETWORK,
      hostMacs: new Set([HOST_MAC]),
      sourceVip: ip(SOURCE_VIPS.IPv4),
      log: silentLogger,
    };
    assert.equal(await cleanUpHost(rig.host, options), false);
  });
});
