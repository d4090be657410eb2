import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ObjectEvent } from "../../model/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../../model/objects.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { DualStackDispatcher, type NodeSink, type ProxierSink } from "./dual-stack.ts";
import { RecordingLogger } from "./testing/recorders.ts";
import { nodeRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

class RecordingProxier implements ProxierSink {
  readonly family: IpFamily;
  readonly #calls: string[];

  constructor(family: IpFamily, calls: string[]) {
    this.family = family;
    this.#calls = calls;
  }

  onService({ kind, object }: ObjectEvent<ServiceRecord>): void {
    this.#add(`${kind} service ${object.name}`);
  }

  onEndpointSlice({ kind, object }: ObjectEvent<EndpointSliceRecord>): void {
    this.#add(`${kind} slice ${object.addressType}`);
  }

  onSynced(kind: "services" | "endpointSlices"): void {
    this.#add(kind === "services" ? "services synced" : "slices synced");
  }

  onZone(zone: string | undefined): void {
    this.#add(`zone ${JSON.stringify(zone)}`);
  }

  onServiceCIDRs(cidrs: readonly string[]): void {
    this.#add(`cidrs ${cidrs.join(",")}`);
  }

  onOtherNodes(otherNodes: ReadonlyMap<IpAddress, string>): void {
    this.#add(`others ${[...otherNodes].flat().join(" ")}`);
  }

  #add(call: string): void {
    this.#calls.push(`${this.family} ${call}`);
  }
}

function setUp(families: readonly IpFamily[] = ["IPv4", "IPv6"]) {
  const calls: string[] = [];
  const log = new RecordingLogger();
  const proxiers = families.map((family) => new RecordingProxier(family, calls));
  const dispatcher = new DualStackDispatcher({ nodeName: "node", log });
  dispatcher.attach(proxiers);
  /** Calls since the last look. */
  const take = (): string[] => calls.splice(0);
  return { dispatcher, log, take };
}

const slice = (addressType: EndpointSliceRecord["addressType"]) => sliceRecord("a", [], { addressType });

describe("dual-stack dispatcher: reference node.md §11", () => {
  it("hands services and synced notices to IPv4, then IPv6", () => {
    const { dispatcher, take } = setUp();
    dispatcher.onEvent("services", { kind: "add", object: serviceRecord("a") });
    dispatcher.onSynced("services");
    dispatcher.onSynced("endpointSlices");
    const expected = ["add service a", "services synced", "slices synced"];
    assert.deepEqual(
      take(),
      expected.flatMap((call) => [`IPv4 ${call}`, `IPv6 ${call}`]),
    );
  });

  it("hands a slice to the family of its addresses alone", () => {
    const { dispatcher, take } = setUp();
    dispatcher.onEvent("endpointSlices", { kind: "add", object: slice("IPv4") });
    dispatcher.onEvent("endpointSlices", { kind: "update", old: slice("IPv6"), object: slice("IPv6") });
    dispatcher.onEvent("endpointSlices", { kind: "delete", object: slice("IPv6") });
    assert.deepEqual(take(), ["IPv4 add slice IPv4", "IPv6 update slice IPv6", "IPv6 delete slice IPv6"]);
  });

  it("tells both families of a slice that changes from one to the other", () => {
    const { dispatcher, take } = setUp();
    dispatcher.onEvent("endpointSlices", { kind: "update", old: slice("IPv4"), object: slice("IPv6") });
    assert.deepEqual(take(), ["IPv4 update slice IPv6", "IPv6 update slice IPv6"]);
  });

  it("drops the slices of a family that is not served, without an error", () => {
    const { dispatcher, log, take } = setUp(["IPv4"]);
    dispatcher.onEvent("endpointSlices", { kind: "add", object: slice("IPv6") });
    assert.deepEqual([take(), log.lines], [[], []]);
  });

  it("logs an error that names a slice of host names", () => {
    const { dispatcher, log, take } = setUp();
    dispatcher.onEvent("endpointSlices", { kind: "add", object: slice("FQDN") });
    assert.deepEqual(take(), []);
    assert.deepEqual(log.lines, [
      'E EndpointSlice is ignored: its address type is not supported {"endpointSlice":"ns/a-1","addressType":"FQDN"}',
    ]);
  });
});

it("says once of each Service that the mode does not know its hash", () => {
  const told: string[] = [];
  const log = new RecordingLogger();
  const onMisread = (...said: readonly string[]): number => told.push(said.join(": "));
  const mode = { name: "toy", ignoresBalancing: true } as const;
  const dispatcher = new DualStackDispatcher({ nodeName: "node", log, onMisread, mode });
  dispatcher.attach([new RecordingProxier("IPv4", []), new RecordingProxier("IPv6", [])]);
  const object = { ...serviceRecord("a"), balancing: "SourceHash" as const };
  dispatcher.onEvent("services", { kind: "add", object: serviceRecord("b") });
  dispatcher.onEvent("services", { kind: "add", object });
  dispatcher.onEvent("services", { kind: "update", old: object, object: { ...object, ports: [] } });
  assert.deepEqual(told, ["ns/a: balancing SourceHash does not count: toy mode chooses endpoints without a hash"]);
  dispatcher.onEvent("services", { kind: "update", old: object, object: { ...object, balancing: "FlowHash" } });
  dispatcher.onEvent("services", { kind: "delete", object });
  assert.deepEqual([told.length, log.lines.length], [2, 2]);
  const [line] = log.lines;
  assert.equal(
    line,
    'W A Service\'s balancing does not count in this mode {"service":"ns/a","balancing":"SourceHash","mode":"toy"}',
  );
});

it("Services that ask to leave out silent endpoints are passed on, or hear that the mode cannot", () => {
  const told: string[] = [];
  let asked = 0;
  const onMisread = (service: string, problem: string) => told.push(`${service}: ${problem}`);
  const log = new RecordingLogger();
  const options = { nodeName: "node", log, onMisread, onLeaving: () => (asked += 1) };
  const asking = { ...serviceRecord("a"), leaveUnanswered: true };
  for (const mode of [{ name: "toy" }, { name: "able", leavesUnanswered: "translated" }]) {
    const dispatcher = new DualStackDispatcher({ ...options, mode });
    dispatcher.attach([new RecordingProxier("IPv4", [])]);
    dispatcher.onEvent("services", { kind: "add", object: { ...asking, name: "b", leaveUnanswered: false } });
    dispatcher.onEvent("services", { kind: "add", object: asking });
    dispatcher.onEvent("services", { kind: "update", old: asking, object: { ...asking, ports: [] } });
    dispatcher.onEvent("services", { kind: "delete", object: asking });
  }
  assert.deepEqual([told, asked], [["ns/a: leave-unanswered does not count: toy mode leaves out no endpoint"], 1]);
  const line = 'W A Service\'s leave-unanswered does not count in this mode {"service":"ns/a","mode":"toy"}';
  assert.deepEqual(log.lines, [line]);
});

describe("dual-stack dispatcher: topology (node.md §8.5)", () => {
  it("tells of the zone when it appears, changes or disappears, and of an empty one", () => {
    const { dispatcher, take } = setUp(["IPv4"]);
    for (const zone of [undefined, "x", "x", "y", undefined, ""]) {
      dispatcher.onEvent("nodes", { kind: "add", object: nodeRecord("node", { zone }) });
    }
    assert.deepEqual(take(), ['IPv4 zone "x"', 'IPv4 zone "y"', "IPv4 zone undefined", 'IPv4 zone ""']);
  });

  it("keeps the zone of a node that is deleted, but tells the others who watch it", () => {
    const { dispatcher, take } = setUp(["IPv4"]);
    const object = nodeRecord("node", { zone: "x" });
    dispatcher.onEvent("nodes", { kind: "add", object });
    dispatcher.onEvent("nodes", { kind: "delete", object });
    dispatcher.onSynced("nodes");
    assert.deepEqual(take(), ['IPv4 zone "x"']);
  });

  it("gives the addresses of other Nodes as they change, without a word of what else they have", () => {
    const { dispatcher, take } = setUp(["IPv4"]);
    const at = (name: string, ...addresses: string[]) =>
      nodeRecord(name, { addresses: addresses.map((address) => ({ type: "InternalIP", address })) });
    const b = at("b", "192.0.2.2", "fd00::2", "b.example", "127.0.0.1");
    dispatcher.onEvent("nodes", { kind: "add", object: b });
    assert.deepEqual(take(), ["IPv4 others 192.0.2.2 b fd00::2 b"]);
    dispatcher.onEvent("nodes", { kind: "update", old: b, object: { ...b, zone: "x" } });
    dispatcher.onEvent("nodes", { kind: "add", object: at("c") });
    assert.deepEqual(take(), []);
    // Two Nodes have the address for a moment.
    dispatcher.onEvent("nodes", { kind: "update", old: at("c"), object: at("c", "192.0.2.2") });
    dispatcher.onEvent("nodes", { kind: "delete", object: b });
    assert.deepEqual(take(), ["IPv4 others 192.0.2.2 c fd00::2 b", "IPv4 others 192.0.2.2 c"]);
  });

  it("ignores other nodes", () => {
    const { dispatcher, take } = setUp(["IPv4"]);
    dispatcher.onEvent("nodes", { kind: "add", object: nodeRecord("other", { zone: "x" }) });
    assert.deepEqual(take(), []);
  });
});

describe("dual-stack dispatcher: ServiceCIDRs (services.md §1)", () => {
  it("tells the sorted union after every event and once after the initial ones", () => {
    const { dispatcher, take } = setUp(["IPv4"]);
    const first = { name: "first", cidrs: ["10.96.0.0/12", "fd00::/108"] };
    const second = { name: "second", cidrs: ["10.0.0.0/16"] };
    dispatcher.onEvent("serviceCIDRs", { kind: "add", object: first });
    dispatcher.onSynced("serviceCIDRs");
    dispatcher.onEvent("serviceCIDRs", { kind: "add", object: second });
    dispatcher.onEvent("serviceCIDRs", { kind: "update", old: second, object: { ...second, cidrs: ["10.1.0.0/16"] } });
    dispatcher.onEvent("serviceCIDRs", { kind: "delete", object: first });
    assert.deepEqual(take(), [
      "IPv4 cidrs 10.96.0.0/12,fd00::/108",
      "IPv4 cidrs 10.96.0.0/12,fd00::/108",
      "IPv4 cidrs 10.0.0.0/16,10.96.0.0/12,fd00::/108",
      "IPv4 cidrs 10.1.0.0/16,10.96.0.0/12,fd00::/108",
      "IPv4 cidrs 10.1.0.0/16",
    ]);
  });

  it("keeps a prefix that a second object still has", () => {
    const { dispatcher, take } = setUp(["IPv4"]);
    const cidrs = ["10.96.0.0/12"];
    dispatcher.onEvent("serviceCIDRs", { kind: "add", object: { name: "a", cidrs } });
    dispatcher.onEvent("serviceCIDRs", { kind: "add", object: { name: "b", cidrs } });
    dispatcher.onEvent("serviceCIDRs", { kind: "delete", object: { name: "a", cidrs } });
    assert.deepEqual(new Set(take()), new Set(["IPv4 cidrs 10.96.0.0/12"]));
  });
});

describe("dual-stack dispatcher: until there are proxiers", () => {
  function beforeProxiers() {
    const seen: string[] = [];
    const early: NodeSink = {
      onEvent: (event) => void seen.push(`early ${event.kind} ${event.object.name}`),
      onSynced: () => void seen.push("early synced"),
    };
    const dispatcher = new DualStackDispatcher({ nodeName: "node", nodeSinks: [early], log: new RecordingLogger() });
    const attach = (): void => dispatcher.attach([new RecordingProxier("IPv4", seen)]);
    return { dispatcher, attach, take: (): string[] => seen.splice(0) };
  }
  const node = nodeRecord("node", { zone: "x" });

  it("nodes go through at once; the rest is handed over when there is a receiver, nodes first", () => {
    const { dispatcher, attach, take } = beforeProxiers();
    dispatcher.onEvent("services", { kind: "add", object: serviceRecord("a") });
    dispatcher.onEvent("serviceCIDRs", { kind: "add", object: { name: "c", cidrs: ["10.96.0.0/12"] } });
    dispatcher.onEvent("nodes", { kind: "add", object: node });
    dispatcher.onSynced("services");
    dispatcher.onSynced("nodes");
    assert.deepEqual(take(), ["early add node", "early synced"]);
    attach();
    assert.deepEqual(take(), [
      'IPv4 zone "x"',
      "IPv4 cidrs 10.96.0.0/12",
      "IPv4 add service a",
      "IPv4 services synced",
    ]);
  });

  it("what changes before there is a receiver is handed over as it is then", () => {
    const { dispatcher, attach, take } = beforeProxiers();
    const [service, other] = [serviceRecord("a"), serviceRecord("other")];
    dispatcher.onEvent("services", { kind: "add", object: service });
    dispatcher.onEvent("services", { kind: "add", object: other });
    dispatcher.onEvent("services", { kind: "update", old: service, object: service });
    dispatcher.onEvent("services", { kind: "delete", object: other });
    dispatcher.onEvent("nodes", { kind: "add", object: node });
    dispatcher.onEvent("nodes", { kind: "delete", object: node });
    take();
    attach();
    assert.deepEqual(take(), ["IPv4 add service a"]);
  });

  it("afterwards everything goes through at once, nodes to both", () => {
    const { dispatcher, attach, take } = beforeProxiers();
    attach();
    dispatcher.onEvent("services", { kind: "delete", object: serviceRecord("a") });
    dispatcher.onEvent("nodes", { kind: "update", old: node, object: node });
    dispatcher.onSynced("endpointSlices");
    assert.deepEqual(take(), ["IPv4 delete service a", "early update node", 'IPv4 zone "x"', "IPv4 slices synced"]);
  });
});
