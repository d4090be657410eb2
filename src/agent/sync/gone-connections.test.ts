import assert from "node:assert/strict";
import { test } from "node:test";
import { Mutex } from "../../async/mutex.ts";
import type { FormerEndpoint, LedConnections } from "../../contract/backend.ts";
import type { LedFlow } from "../../kernel/conntrack/conntrack.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ProxyState } from "../../model/proxy-state.ts";
import type { EndTcp, Flow } from "../../net/flow.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { GoneConnections } from "./gone-connections.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { FakeConntrack, RecordingMetrics } from "./testing/recorders.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);

/** A connection to a Service, answered by this pod. */
function flow(destination: string, replier: string, sourcePort: number): Flow {
  return {
    ...{ protocol: "TCP", sourceIP: ip("10.9.9.9"), sourcePort, destinationIP: ip(destination), destinationPort: 80 },
    ...{ replySourceIP: ip(replier), replySourcePort: 8080, replyDestinationIP: ip("10.9.9.9") },
    replyDestinationPort: sourcePort,
  };
}

class Bench {
  readonly clock = new FakeClock();
  readonly conntrack = new FakeConntrack();
  readonly metrics = new RecordingMetrics();
  readonly state: ProxyState;
  readonly gone: GoneConnections;
  readonly sockets: Flow[] = [];
  readonly errors: unknown[] = [];

  constructor(endTCP: EndTcp, led?: LedConnections) {
    const { clock } = this;
    const now = () => clock.now();
    this.state = new ProxyState({ family: "IPv4", nodeName: "", allowExternalIPs: true, now, log: silentLogger });
    const endSockets = async (flows: readonly Flow[]): Promise<ReadonlySet<Flow>> => {
      this.sockets.push(...flows);
      return new Set(flows);
    };
    this.gone = new GoneConnections({
      ...{ ending: { endTCP, afterMs: 5000, endSockets }, conntrack: this.conntrack, metrics: this.metrics, clock },
      ...{ log: { ...silentLogger, error: (_message, error) => this.errors.push(error) }, family: "IPv4" },
      ...{ state: this.state, turns: new Mutex(), led },
      signal: new AbortController().signal,
    });
  }

  /** Writes the slice of a Service. */
  write(service: string, ips: readonly string[], conditions = {}): void {
    const object = sliceRecord(service, [], {
      endpoints: ips.map((one) => endpointRecord(one, conditions)),
      ports: [{ name: "p", protocol: "TCP", port: 8080 }],
    });
    this.state.onEndpointSlice({ kind: "add", object });
  }

  /** Like `write`, then syncs. */
  set(...args: Parameters<Bench["write"]>): void {
    this.write(...args);
    this.sync();
  }

  add(service: string, changes = {}): void {
    const ports = [{ name: "p", protocol: "TCP", port: 80, nodePort: 0 }] as const;
    this.state.onService({ kind: "add", object: serviceRecord(service, { ports, ...changes }) });
  }

  sync(former: readonly FormerEndpoint[] = []): void {
    this.gone.note(this.state.applyChanges().changedPorts, former);
  }
}

const A = "10.0.0.1";

test("an endpoint must be gone for as long as is asked, and terminating is not gone", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.set("a", ["10.1.0.1", "10.1.0.2"]);
  const [kept, ended] = [flow(A, "10.1.0.1", 1), flow(A, "10.1.0.2", 2)];
  bench.conntrack.flows = [kept, ended];
  bench.set("a", ["10.1.0.1", "10.1.0.2"], { ready: false, serving: false, terminating: true });
  await bench.clock.advance(60_000);
  bench.set("a", ["10.1.0.1"]);
  await bench.clock.advance(4000);
  assert.equal(bench.conntrack.flows.length, 2);
  await bench.clock.advance(2000);
  assert.deepEqual([bench.conntrack.flows, bench.sockets], [[kept], [ended]]);
  assert.deepEqual(bench.metrics.calls, ["1 connections ended"]);
});

test("one that comes back in time keeps its connections; what another Service has does too, until that loses it", async () => {
  const bench = new Bench("Gone");
  for (const name of ["a", "b"])
    bench.add(name, name === "b" ? { clusterIP: "10.0.0.2", clusterIPs: ["10.0.0.2"] } : {});
  bench.set("a", ["10.1.0.1"]);
  bench.set("b", ["10.1.0.1"]);
  bench.conntrack.flows = [flow(A, "10.1.0.1", 1)];
  bench.set("a", []);
  await bench.clock.advance(4000);
  bench.set("a", ["10.1.0.1"]);
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 1);
  bench.set("a", []);
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 1, "b has it");
  bench.set("b", []);
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 0);
});

test("an endpoint that the rules still lead to is not gone, though the model has lost it", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.add("b", { clusterIP: "10.0.0.2", clusterIPs: ["10.0.0.2"] });
  for (const [name, pod] of [
    ["a", "10.1.0.1"],
    ["b", "10.1.0.2"],
  ] as const)
    bench.set(name, [pod]);
  await bench.clock.advance(60_000);
  bench.conntrack.flows = [flow(A, "10.1.0.1", 1)];
  bench.write("a", []);
  // The kernel rejects that for a while.
  const refused = bench.state.applyChanges().changedPorts;
  bench.set("b", []);
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 1);
  bench.gone.note(refused);
  await bench.clock.advance(4999);
  assert.equal(bench.conntrack.flows.length, 1);
  await bench.clock.advance(2);
  assert.equal(bench.conntrack.flows.length, 0);
});

test("endpoints of an earlier process's rules count as gone from the first sync on; of others nothing is known", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  const foreign = flow(A, "10.1.0.8", 2);
  bench.conntrack.flows = [flow(A, "10.1.0.9", 1), foreign, flow(A, "10.1.0.7", 3)];
  bench.write("a", ["10.1.0.1"]);
  bench.sync([
    { owner: "ns/a:p/TCP", endpoint: "10.1.0.9:8080" },
    { owner: { address: ip(A), port: 80 }, endpoint: "10.1.0.7:8080" },
    { owner: "ns/b:p/TCP", endpoint: "10.1.0.8:8080" },
  ]);
  await bench.clock.advance(4999);
  assert.equal(bench.conntrack.flows.length, 3);
  await bench.clock.advance(2);
  assert.deepEqual(bench.conntrack.flows, [foreign]);
});

test("connections that another program leads to a pod that was never the service port's stay", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.set("a", ["10.1.0.1", "10.1.0.2"]);
  // A host port of the CNI, at the Service's address.
  const foreign = [flow(A, "10.9.0.1", 1), { ...flow(A, "10.1.0.2", 2), replySourcePort: 9090 }];
  bench.conntrack.flows = [...foreign, flow(A, "10.1.0.2", 3)];
  bench.set("a", ["10.1.0.1"]);
  await bench.clock.advance(600_000);
  bench.set("a", []);
  await bench.clock.advance(600_000);
  assert.deepEqual(bench.conntrack.flows, foreign);
});

test("of the endpoints that left, the last thousand of a day are remembered", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  const at = (index: number): string => `10.1.${index >> 8}.${index & 255}`;
  for (let index = 0; index <= 1001; index += 1) bench.set("a", [at(index)]);
  const forgotten = flow(A, at(0), 1);
  bench.conntrack.flows = [forgotten, flow(A, at(1), 2), flow(A, at(1000), 3)];
  await bench.clock.advance(60_000);
  assert.deepEqual(bench.conntrack.flows, [forgotten]);
  await bench.clock.advance(86_400_000);
  const old = flow(A, at(1000), 4);
  bench.conntrack.flows = [old, flow(A, at(1001), 5)];
  bench.set("a", []);
  await bench.clock.advance(60_000);
  assert.deepEqual(bench.conntrack.flows, [old]);
});

test("of a socket that the mode redirected the record is the proof", async () => {
  const socket: LedFlow = { ...flow(A, "10.1.0.9", 1), socket: "7" };
  const bench = new Bench("Gone", { read: async (visit) => visit(socket) });
  bench.add("a");
  bench.set("a", ["10.1.0.1"]);
  await bench.clock.advance(60_000);
  assert.deepEqual(bench.sockets, [socket]);
});

test("a look that was not whole, or failed, is repeated: nothing need change for that", async () => {
  for (const dumpError of [undefined, new Error("no answer")]) {
    const bench = new Bench("Gone");
    bench.add("a");
    bench.set("a", ["10.1.0.1"]);
    await bench.clock.advance(60_000);
    bench.conntrack.flows = [flow(A, "10.1.0.1", 1)];
    if (dumpError === undefined) bench.conntrack.interruptions = 3;
    else bench.conntrack.dumpError = dumpError;
    bench.set("a", []);
    await bench.clock.advance(600_000);
    bench.conntrack.dumpError = undefined;
    await bench.clock.advance(60_000);
    assert.equal(bench.conntrack.flows.length, 0);
  }
});

test("a connection that cannot be deleted keeps no other, and is tried again", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.set("a", ["10.1.0.1"]);
  await bench.clock.advance(60_000);
  const [stuck, other] = [flow(A, "10.1.0.1", 1), flow(A, "10.1.0.1", 2)];
  bench.conntrack.flows = [stuck, other];
  bench.conntrack.stuck.add(stuck);
  bench.set("a", []);
  await bench.clock.advance(5001);
  assert.deepEqual(bench.conntrack.flows, [stuck]);
  bench.conntrack.stuck.clear();
  await bench.clock.advance(60_000);
  assert.deepEqual([bench.conntrack.flows, bench.metrics.calls], [[], ["1 connections ended", "1 connections ended"]]);
});

test("while the table cannot be read, endpoints that went are not remembered without end", async (t) => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.conntrack.dumpError = new Error("no answer");
  for (let second = 0; second < 500; second += 1) {
    bench.set("a", [`10.1.${second >> 8}.${second & 255}`]);
    await bench.clock.advance(1000);
  }
  // Every remembered endpoint is noted again.
  const noted = t.mock.method(Map.prototype, "set");
  bench.gone.note([]);
  const count = noted.mock.callCount();
  noted.mock.restore();
  assert.ok(count < 100, `${count} are remembered`);
  bench.conntrack.dumpError = undefined;
  bench.conntrack.flows = [flow(A, "10.1.0.7", 1)];
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 0);
});

test("connections that another Service spared are found again after a look that was not whole", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.add("b", { clusterIP: "10.0.0.2", clusterIPs: ["10.0.0.2"], endTCP: "Never" });
  bench.set("a", ["10.1.0.1"]);
  bench.set("b", ["10.1.0.1"]);
  await bench.clock.advance(60_000);
  bench.conntrack.flows = [flow(A, "10.1.0.1", 1)];
  bench.conntrack.interruptions = 1;
  bench.set("a", []);
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 1, "b has it");
  bench.set("b", []);
  await bench.clock.advance(60_000);
  assert.equal(bench.conntrack.flows.length, 0);
});

test("a pod that another Service loses last is gone from then on, also where a look is due sooner", async () => {
  const bench = new Bench("Gone");
  for (const [index, name] of ["a", "b", "c"].entries()) {
    const clusterIP = `10.0.0.${index + 1}`;
    bench.add(name, { clusterIP, clusterIPs: [clusterIP] });
    bench.set(name, name === "c" ? ["10.1.0.1", "10.1.0.9"] : ["10.1.0.1"]);
  }
  bench.set("c", ["10.1.0.9"]);
  bench.conntrack.flows = [flow(A, "10.1.0.1", 1)];
  bench.set("a", []);
  await bench.clock.advance(60_000);
  bench.set("c", []);
  await bench.clock.advance(4000);
  bench.set("b", []);
  await bench.clock.advance(4999);
  assert.equal(bench.conntrack.flows.length, 1);
  await bench.clock.advance(2);
  assert.equal(bench.conntrack.flows.length, 0);
});

test("a pod that two Services lose one after the other is gone from the second on, though none was looked at between", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.add("b", { clusterIP: "10.0.0.2", clusterIPs: ["10.0.0.2"], endTCP: "Never" });
  for (const name of ["a", "b"]) bench.set(name, ["10.1.0.1"]);
  await bench.clock.advance(60_000);
  bench.conntrack.flows = [flow(A, "10.1.0.1", 1)];
  bench.set("a", []);
  await bench.clock.advance(4000);
  bench.set("b", []);
  await bench.clock.advance(4999);
  assert.equal(bench.conntrack.flows.length, 1);
  await bench.clock.advance(2);
  assert.equal(bench.conntrack.flows.length, 0);
});

test("the annotation goes before the setting; the table is not read where nothing is asked for", async () => {
  for (const [setting, endTCP, dumps] of [
    ["Never", undefined, 0],
    ["Gone", "Never", 0],
    ["Never", "Gone", 1],
  ] as const) {
    const bench = new Bench(setting);
    bench.add("a", endTCP === undefined ? {} : { endTCP });
    bench.conntrack.flows = [flow(A, "10.1.0.9", 1)];
    bench.write("a", ["10.1.0.1"]);
    bench.sync([{ owner: "ns/a:p/TCP", endpoint: "10.1.0.9:8080" }]);
    await bench.clock.advance(60_000);
    assert.deepEqual([bench.conntrack.dumps, bench.conntrack.flows.length], [dumps, 1 - dumps], `${setting} ${endTCP}`);
  }
});

test("a pod that goes with hundreds of thousands of connections, before it is gone for long enough", async () => {
  const bench = new Bench("Gone");
  bench.add("a");
  bench.add("b");
  bench.set("a", ["10.1.0.1"]);
  bench.set("b", ["10.1.0.2"]);
  const one = flow(A, "10.1.0.1", 1);
  bench.conntrack.flows = Array.from({ length: 200_000 }, (_, sourcePort) => ({ ...one, sourcePort }));
  bench.set("b", []);
  await bench.clock.advance(4000);
  bench.set("a", []);
  await bench.clock.advance(4000);
  assert.deepEqual([bench.conntrack.flows.length, bench.errors], [200_000, []]);
});
