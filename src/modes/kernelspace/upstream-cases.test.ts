/**
 * Upstream's own winkernel tests (reference windows-practice.md §6.1) as cluster states and the resulting state of HNS.
 * Where this program differs on purpose, the case says so.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import type { Guid } from "./hcn/guid.ts";
import { type JsonObject, listOf, numberOf, objectOf, textOf } from "./hcn/json-fields.ts";
import { providerOf } from "./plan-service-port.ts";
import { newModel, type RigOptions, SOURCE_VIPS, type TestModel } from "./testing/kernelspace-rig.ts";

const OVERLAY: RigOptions = { type: "Overlay" };
const OVERLAY_DSR: RigOptions = { type: "Overlay", config: { enableDsr: true } };
const DSR: RigOptions = { config: { enableDsr: true } };
const REMOTE = "192.168.2.3";

const SVC1 = (change: Partial<ServicePort> = {}) => port("svc1", "10.20.30.41", { nodePort: 3001, ...change });
const INGRESS = { loadBalancerVIPs: [ip("11.21.31.41")] } as const;

interface Found {
  readonly id: Guid;
  readonly document: JsonObject;
  readonly endpoints: readonly string[];
}

/** Load balancers by VIP and port: `10.20.30.41:80`, `*:3001`. */
function loadBalancers({ rig: { host } }: TestModel): ReadonlyMap<string, Found> {
  const found = new Map<string, Found>();
  for (const [id, document] of host.documents("LoadBalancer")) {
    const [vip = "*"] = listOf(document.FrontendVIPs);
    const { ExternalPort } = objectOf(listOf(document.PortMappings)[0]);
    const endpoints = listOf(document.HostComputeEndpoints).map((one) => addressOf(host, textOf(one)));
    found.set(`${textOf(vip)}:${numberOf(ExternalPort)}`, { id, document, endpoints });
  }
  return found;
}

function addressOf(host: TestModel["rig"]["host"], endpoint: string): string {
  const found = [...host.documents("Endpoint")].find(([id]) => id === endpoint)?.[1];
  return textOf(objectOf(listOf(found?.IpConfigurations)[0]).IpAddress);
}

/** Addresses of endpoints, and whether they are remote. */
function endpoints({ rig: { host } }: TestModel): Readonly<Record<string, "local" | "remote">> {
  const all = [...host.documents("Endpoint")].map(([id, { Flags }]) => [
    addressOf(host, id),
    numberOf(Flags) === 1 ? ("remote" as const) : ("local" as const),
  ]);
  return Object.fromEntries(all.sort(([a = ""], [b = ""]) => a.localeCompare(b)));
}

describe("upstream's cases: endpoints", () => {
  test("CreateServiceVip: on an overlay the cluster IP has an endpoint, also without pods", async () => {
    const model = newModel(OVERLAY_DSR);
    model.set(SVC1({ externalIPs: [ip("50.60.70.81")], sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 10800 }), []);
    await model.rig.sync();
    assert.deepEqual(endpoints(model), { "10.20.30.41": "remote", "192.168.1.2": "local" });
    assert.equal(loadBalancers(model).size, 0);
  });

  test("CreateRemoteEndpointOverlay: it knows the node that carries the address", async () => {
    const model = newModel(OVERLAY);
    model.set(SVC1(), [remote(REMOTE)]);
    await model.rig.sync();
    assert.deepEqual(endpoints(model), { "10.20.30.41": "remote", "192.168.1.2": "local", [REMOTE]: "remote" });
    const providers = model.rig.host
      .takeWrites()
      .flatMap(({ about }) => [...about.matchAll(/"ProviderAddress":"([^"]+)"/g)].map(([, address]) => address));
    assert.deepEqual(providers.sort(), ["10.0.0.1", "10.0.0.3"]);
  });

  test("CreateRemoteEndpointL2Bridge: it has the MAC of its address, and no policy", async () => {
    const model = newModel();
    model.set(SVC1(), [remote(REMOTE)]);
    await model.rig.sync();
    const [document] = [...model.rig.host.documents("Endpoint").values()];
    assert.equal(document?.MacAddress, "02-11-c0-a8-02-03");
    assert.equal(document?.Policies, undefined);
  });

  test("DsrEndpointsAreCreatedCorrectly: with direct answers, too, the pod elsewhere has an endpoint", async () => {
    const model = newModel(OVERLAY_DSR);
    model.set(SVC1({ nodePort: 0 }), [remote(REMOTE)]);
    await model.rig.sync();
    assert.deepEqual(endpoints(model), { "10.20.30.41": "remote", "192.168.1.2": "local", [REMOTE]: "remote" });
    assert.deepEqual(loadBalancers(model).get("10.20.30.41:80")?.endpoints, [REMOTE]);
  });

  test("FindRemoteSubnetProviderAddress: the node itself, what it carries, and what no node has", () => {
    const subnet = { prefix: "192.168.2.0/24" as Cidr, providerAddress: ip("10.0.0.3") }; // canonical
    const remoteSubnets = [subnet];
    assert.equal(providerOf(ip("10.0.0.3"), { remoteSubnets }), "10.0.0.3");
    assert.equal(providerOf(ip(REMOTE), { remoteSubnets }), "10.0.0.3");
    assert.equal(providerOf(ip("11.0.0.1"), { remoteSubnets }), undefined);
    const later = { ...subnet, providerAddress: ip("10.0.0.4") };
    assert.equal(providerOf(ip(REMOTE), { remoteSubnets: [subnet, later] }), "10.0.0.4", "the last one counts");
  });

  test("SharedRemoteEndpointDelete: an endpoint stays while one service names it", async () => {
    const model = newModel(DSR);
    const svc2 = port("svc2", "10.20.30.42", { nodePort: 3002 });
    model.set(SVC1(), [remote(REMOTE)]);
    model.set(svc2, [remote(REMOTE)]);
    await model.rig.sync();
    const [before] = model.rig.host.documents("Endpoint").keys();
    model.delete(svc2);
    await model.rig.sync();
    assert.deepEqual([...model.rig.host.documents("Endpoint").keys()], [before]);
    assert.deepEqual([...loadBalancers(model).keys()].sort(), ["*:3001", "10.20.30.41:80"]);
    model.delete(SVC1());
    await model.rig.sync();
    assert.deepEqual(model.rig.state(), []);
  });

  test("SharedRemoteEndpointUpdate: a changed service keeps it", async () => {
    const model = newModel(DSR);
    model.set(SVC1(), [remote(REMOTE)]);
    model.set(port("svc2", "10.20.30.42", { nodePort: 3002 }), [remote(REMOTE)]);
    await model.rig.sync();
    const [before] = model.rig.host.documents("Endpoint").keys();
    model.set(SVC1({ nodePort: 3003 }));
    // The slice gets a second port.
    const second = { ...SVC1({ port: 443, nodePort: 0 }), name: servicePortName("ns", "svc1", "p443", "TCP") };
    model.set(second, [makeEndpoint(REMOTE, 8443)]);
    await model.rig.sync();
    assert.deepEqual([...model.rig.host.documents("Endpoint").keys()], [before]);
    assert.ok(loadBalancers(model).has("*:3003") && !loadBalancers(model).has("*:3001"));
  });

  test("RemoteAndLocalEndpointsSameIP: the pod's own endpoint serves both services", async () => {
    const model = newModel();
    const own = model.rig.host.addEndpoint({ addresses: ["192.168.4.4"] });
    model.set(SVC1(), [local("192.168.4.4")]);
    model.set(port("svc2", "10.20.30.42"), [remote("192.168.4.4")]);
    await model.rig.sync();
    assert.deepEqual([...model.rig.host.documents("Endpoint").keys()], [own]);
    assert.equal(loadBalancers(model).size, 3);
  });

  test("RemoteEndpointDeleteDoesNotAffectLocalEndpointWithSameIP", async () => {
    const model = newModel();
    const { host } = model.rig;
    host.addEndpoint({ addresses: ["192.168.4.4"] });
    const svc2 = port("svc2", "10.20.30.42");
    model.set(SVC1(), [local("192.168.4.4"), remote(REMOTE)]);
    model.set(svc2, [local("192.168.4.4"), remote(REMOTE)]);
    await model.rig.sync();
    const second = host.addEndpoint({ addresses: [REMOTE] });
    const svc3 = port("svc3", "10.20.30.43");
    model.set(svc3, [local(REMOTE)]);
    await model.rig.sync();
    // Unlike upstream, the load balancers move to the pod's own endpoint at once; then the remote one is deleted.
    assert.deepEqual(endpoints(model), { "192.168.4.4": "local", [REMOTE]: "local" });
    model.delete(SVC1());
    model.delete(svc2);
    await model.rig.sync();
    assert.ok(host.has("Endpoint", second));
    assert.deepEqual(loadBalancers(model).get("10.20.30.43:80")?.endpoints, [REMOTE]);
  });

  /** Kubernetes #112836: upstream deletes endpoints that load balancers still name. */
  test("EndpointTransitionWithLBFailures: what could not be deleted keeps its endpoints, and both go later", async () => {
    const model = newModel({ canModify: false });
    const { rig } = model;
    rig.host.addEndpoint({ addresses: ["192.168.4.4"] });
    const services = [SVC1(), port("svc2", "10.20.30.42", { nodePort: 3002 })];
    const four = [local("192.168.4.4"), remote(REMOTE), remote("192.168.2.4"), remote("192.168.2.5")];
    for (const one of services) model.set(one, four);
    await rig.sync();
    const heal = rig.host.refuse(({ verb, kind }) =>
      verb === "Delete" && kind === "LoadBalancer" ? HR.hasReferences : undefined,
    );
    for (const one of services) model.set(one, four.slice(0, 2));
    const { failures } = await rig.sync();
    assert.equal(failures.length, 2);
    assert.equal(loadBalancers(model).get("10.20.30.41:80")?.endpoints.length, 4);
    assert.equal(Object.keys(endpoints(model)).length, 4, "no load balancer names an endpoint that is gone");
    heal();
    assert.deepEqual((await rig.sync()).failures, []);
    assert.deepEqual(loadBalancers(model).get("10.20.30.41:80")?.endpoints, [REMOTE, "192.168.4.4"]);
    assert.deepEqual(Object.keys(endpoints(model)), [REMOTE, "192.168.4.4"]);
  });

  test("GetAllEndpointsByNetworkWithDupEP: of two endpoints with the same addresses the local one counts", async () => {
    for (const order of ["remote first", "local first"] as const) {
      const model = newModel();
      const { host } = model.rig;
      const addresses = ["192.168.1.3", "192::3"];
      const add = (isRemote: boolean) => host.addEndpoint({ addresses, isRemote, mac: "02-11-c0-a8-01-03" });
      const kinds = order === "remote first" ? [true, false] : [false, true];
      const ids = new Map(kinds.map((isRemote) => [isRemote, add(isRemote)]));
      model.set(SVC1(), [local("192.168.1.3")]);
      await model.rig.sync();
      const { document } = loadBalancers(model).get("10.20.30.41:80") ?? {};
      assert.deepEqual(document?.HostComputeEndpoints, [ids.get(false)], order);
    }
  });
});

describe("upstream's cases: load balancers", () => {
  for (const [name, options, flags] of [
    ["CreateLoadBalancerWithoutDSR", OVERLAY, 0],
    ["CreateLoadBalancerWithDSR", OVERLAY_DSR, 1],
  ] as const) {
    test(name, async () => {
      const model = newModel(options);
      model.set(SVC1(), [remote(REMOTE)]);
      await model.rig.sync();
      assert.equal(numberOf(loadBalancers(model).get("10.20.30.41:80")?.document.Flags), flags);
    });
  }

  test("DsrNotAppliedToClusterTrafficPolicy: from outside there is no direct answer with the Cluster policy", async () => {
    const model = newModel(OVERLAY_DSR);
    model.set(SVC1(INGRESS), [remote(REMOTE)]);
    await model.rig.sync();
    const flags = Object.fromEntries(
      [...loadBalancers(model)].map(([key, { document }]) => [key, numberOf(document.Flags)]),
    );
    assert.deepEqual(flags, { "10.20.30.41:80": 1, "11.21.31.41:80": 0, "*:3001": 0 });
  });

  test("WinDSRWithOverlayEnabled: the Local policy answers directly, also where it is written for a ClusterIP", async () => {
    const model = newModel({ type: "Overlay" });
    model.rig.host.addEndpoint({ addresses: [REMOTE] });
    model.set(SVC1({ externalIPs: [ip("50.60.70.81")], nodePort: 0, externalPolicyLocal: true }), [local(REMOTE)]);
    await model.rig.sync();
    const flags = [...loadBalancers(model)].map(([key, { document }]) => [key, numberOf(document.Flags)]);
    assert.deepEqual(Object.fromEntries(flags), { "10.20.30.41:80": 0, "50.60.70.81:80": 1 });
  });

  test("the order of endpoints is of no matter (§6.2): what has them in another one is left as it is", async () => {
    const model = newModel(DSR);
    model.set(SVC1(), [remote(REMOTE), remote("192.168.2.4")]);
    await model.rig.sync();
    for (const [id, document] of [...model.rig.host.documents("LoadBalancer")]) {
      const HostComputeEndpoints = listOf(document.HostComputeEndpoints).toReversed();
      model.rig.host.setLoadBalancer(id, { HostComputeEndpoints });
    }
    model.rig.host.takeCalls();
    await model.rig.sync({ full: true });
    assert.deepEqual(model.rig.host.takeWrites(), []);
  });

  for (const canModify of [true, false]) {
    const place = canModify ? "" : ", also where it is replaced (kubernetes #133928, #133953)";
    test(`ClusterIPSvcWithITPLocal: the load balancer follows this node's pods, others are not attached${place}`, async () => {
      const model = newModel({ ...DSR, canModify });
      const { host } = model.rig;
      const service = SVC1({ internalPolicyLocal: true, nodePort: 0 });
      host.addEndpoint({ addresses: ["192.168.4.4"] });
      model.set(service, [local("192.168.4.4")]);
      await model.rig.sync();
      host.addEndpoint({ addresses: ["192.168.4.5"] });
      model.setEndpoints(service, [local("192.168.4.4"), local("192.168.4.5")]);
      await model.rig.sync();
      const two = loadBalancers(model).get("10.20.30.41:80");
      assert.deepEqual(two?.endpoints, ["192.168.4.4", "192.168.4.5"]);
      host.takeCalls();
      model.setEndpoints(service, [local("192.168.4.4"), local("192.168.4.5"), remote(REMOTE)]);
      await model.rig.sync();
      assert.equal(loadBalancers(model).get("10.20.30.41:80")?.id, two?.id);
      // Upstream creates an endpoint for the remote pod that no load balancer names.
      assert.deepEqual(host.takeWrites(), []);
    });
  }

  for (const canModify of [true, false]) {
    test(`UpdateLoadBalancerWhen${canModify ? "Supported" : "Unsupported"}`, async () => {
      const model = newModel({ ...OVERLAY_DSR, canModify });
      model.set(SVC1(), [remote(REMOTE)]);
      await model.rig.sync();
      const before = loadBalancers(model).get("10.20.30.41:80")?.id;
      model.setEndpoints(SVC1(), [remote("10.0.0.3")]);
      await model.rig.sync();
      const after = loadBalancers(model).get("10.20.30.41:80");
      assert.equal(after?.id === before, canModify);
      assert.deepEqual(after?.endpoints, ["10.0.0.3"]);
      // An address of another node is reached from this node's address.
      assert.equal(after?.document.SourceVIP, "10.0.0.1");
      assert.equal(endpoints(model)[REMOTE], undefined);
    });
  }

  test("CreateDsrLoadBalancer: cluster IP, node port, ingress and health check", async () => {
    const model = newModel({
      type: "Overlay",
      config: { enableDsr: true, healthPort: 10256 },
      rootName: "EP-GW",
    });
    model.rig.host.addEndpoint({ addresses: [REMOTE] });
    model.rig.host.addEndpoint({ name: "EP-GW", addresses: ["192.168.2.1"] });
    const service = { ...INGRESS, externalPolicyLocal: true, healthCheckNodePort: 32000 };
    model.set(SVC1(service), [local(REMOTE)]);
    await model.rig.sync();
    const found = loadBalancers(model);
    assert.deepEqual([...found.keys()].sort(), ["*:3001", "10.20.30.41:80", "11.21.31.41:32000", "11.21.31.41:80"]);
    const health = found.get("11.21.31.41:32000");
    assert.deepEqual(health?.endpoints, ["192.168.2.1"]);
    for (const [at, { document }] of found) assert.equal(document.SourceVIP, SOURCE_VIPS.IPv4, at);
    assert.deepEqual(health?.document.PortMappings, [{ Protocol: 6, InternalPort: 32000, ExternalPort: 32000 }]);
    assert.equal(numberOf(found.get("11.21.31.41:80")?.document.Flags), 1);
    assert.equal(numberOf(found.get("*:3001")?.document.Flags), 1);
  });

  test("ClusterIPLBInCreateDsrLoadBalancer: without a pod here, a Local policy leaves the cluster IP alone", async () => {
    const model = newModel(OVERLAY);
    model.set(SVC1({ ...INGRESS, externalPolicyLocal: true }), [remote(REMOTE)]);
    await model.rig.sync();
    assert.deepEqual([...loadBalancers(model).keys()], ["10.20.30.41:80"]);
  });

  test("EndpointSliceWithInternalPortDifferentFromServicePort", async () => {
    const model = newModel(OVERLAY);
    model.set(SVC1(), [remote(REMOTE)]);
    await model.rig.sync();
    assert.deepEqual(loadBalancers(model).get("10.20.30.41:80")?.document.PortMappings, [
      { Protocol: 6, InternalPort: 8080, ExternalPort: 80 },
    ]);
  });

  test("EndpointSlice: the port of the slice counts, not the Service's target port", async () => {
    const model = newModel(OVERLAY);
    model.set(SVC1({ nodePort: 0 }), [makeEndpoint(REMOTE, 80)]);
    await model.rig.sync();
    const { document } = loadBalancers(model).get("10.20.30.41:80") ?? {};
    assert.deepEqual(document?.PortMappings, [{ Protocol: 6, InternalPort: 80, ExternalPort: 80 }]);
  });

  test("NoopEndpointSlice: nothing is asked for and nothing is made", async () => {
    const model = newModel();
    await model.rig.sync();
    assert.deepEqual(model.rig.state(), []);
  });

  /** Kubernetes #100966, #101047, #115501. */
  test("ETP…IngressIPServiceWith…DualStack: both families on one host, each with its own", async () => {
    for (const policy of ["Local", "Cluster"] as const) {
      const isLocal = policy === "Local";
      const options = { config: { enableDsr: isLocal, healthPort: 10256 }, rootName: "EP-GW" };
      const four = newModel(options);
      const six = newModel({ ...options, family: "IPv6", host: four.rig.host });
      const { host } = four.rig;
      host.addEndpoint({ addresses: ["192.168.5.3", "192::5:3"] });
      host.addEndpoint({ name: "EP-GW", addresses: ["192.168.2.1", "192::2:1"] });
      const change = { externalPolicyLocal: isLocal, healthCheckNodePort: isLocal ? 32000 : 0 };
      const elsewhere = (address: string) => (isLocal ? [] : [remote(address)]);
      four.set(SVC1({ ...INGRESS, ...change }), [local("192.168.5.3"), ...elsewhere(REMOTE)]);
      six.set(port("svc1", "fd00::21", { nodePort: 3001, loadBalancerVIPs: [ip("fd00::1")], ...change }), [
        makeEndpoint("192::5:3", 8080, { isLocal: true }),
        ...elsewhere("192::2:3"),
      ]);
      await four.rig.sync();
      await six.rig.sync();
      // A full sync of one family does not touch objects of the other.
      await four.rig.sync({ full: true });
      const found = [...host.documents("LoadBalancer").values()];
      assert.equal(found.length, 8, policy);
      const flags = found.map(({ Flags }) => numberOf(Flags)).sort();
      assert.deepEqual(flags, isLocal ? [0, 1, 1, 1, 2, 3, 3, 3] : [0, 0, 0, 0, 2, 2, 2, 2], policy);
      for (const { HostComputeEndpoints: named, PortMappings: mappings } of found) {
        const isHealth = [32000, 10256].includes(numberOf(objectOf(listOf(mappings)[0]).ExternalPort));
        assert.equal(listOf(named).length, isHealth || isLocal ? 1 : 2, policy);
      }
      assert.equal(host.documents("Endpoint").size, isLocal ? 2 : 4);
    }
  });
});
