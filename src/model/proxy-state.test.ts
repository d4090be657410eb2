import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Facts, silentLogger } from "../logging/logger.ts";
import { frontendKey } from "./frontend.ts";
import { ProxyState } from "./proxy-state.ts";
import { makeEndpointRecord, makeService, makeSlice, TCP_80, UDP_53 } from "./testing/records.ts";

function makeState(log = silentLogger) {
  return new ProxyState({ family: "IPv4", nodeName: "node-a", allowExternalIPs: true, now: () => 0, log });
}

function makeStateWith(events: readonly ((state: ProxyState) => void)[]): ProxyState {
  const state = makeState();
  for (const event of events) event(state);
  return state;
}

const SERVICE = makeService({
  ports: [
    { name: "p", protocol: "TCP", port: 80, nodePort: 0 },
    { name: "dns", protocol: "UDP", port: 53, nodePort: 0 },
  ],
});
const SLICE = makeSlice({
  ports: [TCP_80, UDP_53],
  endpoints: [makeEndpointRecord("10.0.0.1"), makeEndpointRecord("10.0.0.2", { ready: false })],
  lastChangeTriggerTime: "2024-01-01T00:00:00Z",
});

describe("proxy state", () => {
  test("events change nothing until they are applied, then everything at once", () => {
    const state = makeState();
    assert.equal(state.onService({ kind: "add", object: SERVICE }), true);
    assert.deepEqual(state.onEndpointSlice({ kind: "add", object: SLICE }), { accepted: true, changed: true });
    assert.deepEqual([state.services.size, state.endpoints.size, state.endpointCount], [0, 0, 0]);
    assert.equal(state.pendingServiceCount, 1);

    const changes = state.applyChanges();
    assert.deepEqual([...changes.updatedServices], ["ns1/svc1"]);
    assert.deepEqual([...changes.changedPorts].sort(), ["ns1/svc1:dns/UDP", "ns1/svc1:p/TCP"]);
    assert.equal(changes.conntrackCleanupRequired, true);
    assert.deepEqual(changes.triggerTimesMs, [{ service: "ns1/svc1", timesMs: [Date.UTC(2024, 0, 1)] }]);
    assert.equal(state.pendingServiceCount, 0);
    assert.equal(state.portCount("UDP"), 1);
    assert.deepEqual(
      [...state.services.values()]
        .map((port) => state.ownerOf(frontendKey(port.protocol, { address: port.clusterIP, port: port.port })))
        .sort(),
      ["ns1/svc1:dns/UDP", "ns1/svc1:p/TCP"],
    );
  });

  test("what comes between the steps of applying is applied now or the next time, and nothing is lost", () => {
    const named = (number: number) => ({
      name: `svc${number}`,
      clusterIP: `172.16.0.${number}`,
      clusterIPs: [`172.16.0.${number}`],
    });
    const service = (number: number, port: number) =>
      makeService({ ...named(number), ports: [{ name: "p", protocol: "TCP", port, nodePort: 0 }] });
    const slice = (number: number, address: string) =>
      makeSlice({ serviceName: `svc${number}`, endpoints: [makeEndpointRecord(address)], resourceVersion: address });
    const numbers = [1, 2, 3, 4];
    const events = (port: number): ((state: ProxyState) => void)[] =>
      numbers.flatMap((number) => [
        (state) =>
          void state.onService({ kind: "update", old: service(number, port - 1), object: service(number, port) }),
        (state) => {
          const old = slice(number, `10.0.${number}.${port - 1}`);
          state.onEndpointSlice({ kind: "update", old, object: slice(number, `10.0.${number}.${port}`) });
        },
      ]);
    const seen = ({ services, endpoints, endpointCount, pendingServiceCount }: ProxyState) => ({
      services: [...services].sort(),
      endpoints: [...endpoints].sort(),
      endpointCount,
      pendingServiceCount,
    });
    const expected = makeState();
    for (const event of [...events(81), ...events(82)]) event(expected);
    expected.applyChanges();
    const steps = [...makeStateWith(events(81)).applyingChanges()].length;
    assert.ok(steps >= numbers.length * 4);
    for (let at = 0; at < steps; at += 1) {
      const between = events(82);
      for (const event of between) {
        const state = makeStateWith(events(81));
        const applying = state.applyingChanges();
        for (let step = 0; step < at; step += 1) applying.next();
        event(state);
        while (applying.next().done !== true);
        for (const other of between) if (other !== event) other(state);
        state.applyChanges();
        assert.deepEqual(seen(state), seen(expected), `after step ${at}`);
      }
    }
  });

  test("nothing pending applies as nothing", () => {
    const { updatedServices, changedPorts, conntrackCleanupRequired, triggerTimesMs } = makeState().applyChanges();
    assert.deepEqual(
      [updatedServices.size, changedPorts.size, conntrackCleanupRequired, triggerTimesMs],
      [0, 0, false, []],
    );
  });

  test("changes of services and of endpoints are told together", () => {
    const state = makeState();
    state.onService({ kind: "add", object: makeService() });
    state.onEndpointSlice({ kind: "add", object: makeSlice({ ...SLICE, serviceName: "svc2", ports: [TCP_80] }) });
    const changes = state.applyChanges();
    assert.deepEqual([...changes.updatedServices].sort(), ["ns1/svc1", "ns1/svc2"]);
    assert.deepEqual([...changes.changedPorts].sort(), ["ns1/svc1:p/TCP", "ns1/svc2:p/TCP"]);
  });

  for (const protocol of ["UDP", "SCTP", "TCP"] as const) {
    test(`what a ${protocol} Service gets that has endpoints asks for a look at flows that were not led there`, () => {
      const port = { name: "p", protocol, port: 80, nodePort: 0 };
      const service = makeService({ ports: [port] });
      const wider = [
        makeService({ ports: [port], externalIPs: ["192.0.2.1"] }),
        makeService({ ports: [port], loadBalancerIngress: [{ ip: "192.0.2.2", ipMode: "VIP" }] }),
        makeService({ ports: [{ ...port, nodePort: 30080 }] }),
      ];
      const state = makeStateWith([
        (one) => one.onEndpointSlice({ kind: "add", object: makeSlice({ ports: [port], endpoints: SLICE.endpoints }) }),
      ]);
      state.applyChanges();
      const asks = () => state.applyChanges().conntrackCleanupRequired;
      state.onService({ kind: "add", object: service });
      assert.equal(asks(), protocol !== "TCP", "the Service itself");
      let old = service;
      for (const object of wider) {
        state.onService({ kind: "update", old, object });
        assert.equal(asks(), protocol !== "TCP", JSON.stringify(object));
        old = object;
      }
      state.onService({ kind: "update", old, object: { ...old, sessionAffinity: "ClientIP" } });
      assert.equal(asks(), false, "no address came or went");
    });
  }

  test("a UDP frontend that changes hands asks for a look at flows, for its new owner", () => {
    const udp = { name: "p", protocol: "UDP", port: 80, nodePort: 0 } as const;
    const loser = makeService({ name: "b", ports: [udp], externalIPs: ["172.16.0.9"] });
    const address = "172.16.0.9";
    const owner = makeService({ name: "a", clusterIP: address, clusterIPs: [address], ports: [udp] });
    const state = makeStateWith([(one) => one.onService({ kind: "add", object: loser })]);
    state.applyChanges();
    for (const kind of ["add", "delete"] as const) {
      state.onService({ kind, object: owner });
      assert.equal(state.applyChanges().conntrackCleanupRequired, true, kind);
    }
  });

  test("the endpoint count is per service port, ready or not, and ignores ports without a service", () => {
    const state = makeState();
    state.onEndpointSlice({ kind: "add", object: SLICE });
    state.applyChanges();
    assert.equal(state.endpointCount, 0);
    state.onService({ kind: "add", object: SERVICE });
    state.applyChanges();
    assert.equal(state.endpointCount, 4);
    const one = { ...SLICE, endpoints: SLICE.endpoints.slice(1) };
    state.onEndpointSlice({ kind: "update", old: SLICE, object: one });
    state.applyChanges();
    assert.equal(state.endpointCount, 2);
    state.onService({ kind: "update", old: SERVICE, object: { ...SERVICE, ports: SERVICE.ports.slice(1) } });
    state.applyChanges();
    assert.equal(state.endpointCount, 1);
    state.onEndpointSlice({ kind: "delete", object: one });
    state.applyChanges();
    assert.equal(state.endpointCount, 0);
  });

  test("a slice that is relabelled leaves its old service", () => {
    const state = makeState();
    state.onEndpointSlice({ kind: "add", object: SLICE });
    state.applyChanges();
    const moved = { ...SLICE, serviceName: "svc2" };
    assert.deepEqual(state.onEndpointSlice({ kind: "update", old: SLICE, object: moved }), {
      accepted: true,
      changed: true,
    });
    state.applyChanges();
    assert.deepEqual([...state.endpoints.keys()].sort(), ["ns1/svc2:dns/UDP", "ns1/svc2:p/TCP"]);
    const unlabelled = { ...SLICE, serviceName: "" };
    assert.equal(state.onEndpointSlice({ kind: "update", old: moved, object: unlabelled }).changed, true);
    state.applyChanges();
    assert.equal(state.endpoints.size, 0);
    assert.equal(state.onEndpointSlice({ kind: "update", old: unlabelled, object: SLICE }).accepted, true);
    state.applyChanges();
    assert.equal(state.endpoints.size, 2);
  });

  test("a slice without a service is no error: other controllers keep such", () => {
    const lines: string[] = [];
    const log = {
      ...silentLogger,
      error: (message: string) => lines.push(`error ${message}`),
      v: (level: number, message: string) => lines.push(`${level} ${message}`),
    };
    const object = makeSlice({ serviceName: "" });
    assert.equal(makeState(log).onEndpointSlice({ kind: "add", object }).accepted, false);
    assert.deepEqual(lines, ["4 endpoint slice ignored: no label says which service it belongs to"]);
  });

  test("slices of another family are not accepted", () => {
    const object = makeSlice({ addressType: "IPv6" });
    assert.deepEqual(makeState().onEndpointSlice({ kind: "add", object }), { accepted: false, changed: false });
  });

  test("what is left out of a bad object is logged with its object, field and value", () => {
    const errors: [string, Facts | undefined][] = [];
    const log = {
      ...silentLogger,
      error: (message: string, _cause: unknown, facts?: Facts) => errors.push([message, facts]),
    };
    const state = makeState(log);
    state.onService({ kind: "add", object: makeService({ externalIPs: ["1.2.3.4 -j ACCEPT"] }) });
    state.onEndpointSlice({ kind: "add", object: makeSlice({ ports: [{ ...TCP_80, port: null }] }) });
    state.applyChanges();
    assert.deepEqual(
      errors.map(([, facts]) => facts),
      [
        { service: "ns1/svc1", field: "spec.externalIPs[0]", value: "1.2.3.4 -j ACCEPT" },
        { endpointSlice: "ns1/svc1-a", field: "ports[0].port" },
      ],
    );
    assert.deepEqual([...state.services.keys()], ["ns1/svc1:p/TCP"]);
  });

  test("added, changed and removed service ports are logged when verbose", () => {
    const lines: string[] = [];
    const log = {
      ...silentLogger,
      isVerbose: (level: number) => level <= 4,
      v: (_level: number, message: string, facts?: Facts) =>
        lines.push(`${message} ${facts?.portName} ${facts?.servicePort}`),
    };
    const state = makeState(log);
    const moved = makeService({ clusterIPs: ["172.16.0.9"] });
    state.onService({ kind: "add", object: makeService() });
    state.applyChanges();
    state.onService({ kind: "update", old: makeService(), object: moved });
    state.applyChanges();
    state.onService({ kind: "delete", object: moved });
    state.applyChanges();
    assert.deepEqual(lines, [
      "Adding new service port ns1/svc1:p 172.16.0.1:80/TCP",
      "Updating existing service port ns1/svc1:p 172.16.0.9:80/TCP",
      "Removing service port ns1/svc1:p 172.16.0.9:80/TCP",
    ]);
  });
});
