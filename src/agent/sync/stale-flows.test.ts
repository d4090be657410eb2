import assert from "node:assert/strict";
import { it } from "node:test";
import { Mutex } from "../../async/mutex.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ProxyState } from "../../model/proxy-state.ts";
import type { Flow } from "../../net/flow.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { deleteStaleFlows, StaleFlows } from "./stale-flows.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { FakeConntrack, RecordingMetrics } from "./testing/recorders.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

const NONE: ReadonlySet<string> = new Set();
const NEVER = new AbortController().signal;

function flow(destination: string, replier: string, sourcePort: number): Flow {
  const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);
  return {
    protocol: "UDP",
    sourceIP: ip("10.9.9.9"),
    sourcePort,
    destinationIP: ip(destination),
    destinationPort: 80,
    replySourceIP: ip(replier),
    replySourcePort: 8080,
    replyDestinationIP: ip("10.9.9.9"),
    replyDestinationPort: sourcePort,
  };
}

function emptyState(): ProxyState {
  return new ProxyState({ family: "IPv4", nodeName: "", allowExternalIPs: true, now: () => 0, log: silentLogger });
}

/** A UDP service 10.0.0.1:80 whose only endpoint is 10.1.0.1:8080. */
function served(isServing: boolean): ProxyState {
  const state = emptyState();
  const ports = [{ name: "p", protocol: "UDP", port: 80, nodePort: 0 }] as const;
  state.onService({ kind: "add", object: serviceRecord("a", { ports }) });
  const endpoints = [endpointRecord("10.1.0.1", { ready: isServing, serving: isServing })];
  const slice = sliceRecord("a", [], { endpoints, ports: [{ name: "p", protocol: "UDP", port: 8080 }] });
  state.onEndpointSlice({ kind: "add", object: slice });
  state.applyChanges();
  return state;
}

const turns = new Mutex();

function cleaned(
  conntrack: FakeConntrack,
  family: "IPv4",
  state: ProxyState,
  gone: ReadonlySet<string>,
  signal: AbortSignal,
) {
  return deleteStaleFlows({ conntrack, family, state, turns, signal }, gone, new Set());
}

const good = flow("10.0.0.1", "10.1.0.1", 1);
const gone = flow("10.0.0.1", "10.1.0.2", 2);
const black = flow("10.0.0.1", "10.0.0.1", 3);
const other = flow("10.0.0.2", "10.1.0.2", 4);

it("deletes the flows to endpoints that are gone and those never sent to one, and keeps all others", async () => {
  const table = new FakeConntrack();
  table.flows = [good, gone, black, other];
  assert.deepEqual(await cleaned(table, "IPv4", served(true), NONE, NEVER), { deleted: 2, errors: [], isWhole: true });
  assert.deepEqual(table.flows, [good, other]);
});

it("goes on after a flow that cannot be deleted and says why", async () => {
  const table = new FakeConntrack();
  table.flows = [gone, black];
  table.stuck.add(gone);
  const { deleted, errors } = await cleaned(table, "IPv4", served(true), NONE, NEVER);
  assert.equal(deleted, 1);
  assert.match(String(errors), /flow from port 2 cannot be deleted/);
  assert.deepEqual(table.flows, [gone]);
});

it("deletes every flow to a service without serving endpoints, and to one that is gone", async () => {
  const table = new FakeConntrack();
  table.flows = [good, gone, black, other];
  assert.equal((await cleaned(table, "IPv4", served(false), NONE, NEVER)).deleted, 3);
  assert.deepEqual(table.flows, [other]);
  const { deleted } = await cleaned(table, "IPv4", emptyState(), new Set(["udp 10.0.0.2:80"]), NEVER);
  assert.deepEqual([deleted, table.flows], [1, []]);
});

it("does not read the table where there is no UDP service, and was none", async () => {
  const table = new FakeConntrack();
  table.flows = [gone];
  assert.deepEqual(await cleaned(table, "IPv4", emptyState(), NONE, NEVER), { deleted: 0, errors: [], isWhole: true });
  assert.deepEqual([table.dumps, table.flows.length], [0, 1]);
});

it("deletes nothing more once the signal aborts", async () => {
  const table = new FakeConntrack();
  table.flows = [gone];
  assert.equal((await cleaned(table, "IPv4", served(true), NONE, AbortSignal.abort())).deleted, 0);
  assert.deepEqual(table.flows, [gone]);
});

it("rejects when the table cannot be read", async () => {
  const table = new FakeConntrack();
  table.dumpError = new Error("not permitted");
  await assert.rejects(cleaned(table, "IPv4", served(true), NONE, NEVER), /not permitted/);
});

it("looks again after a look that was not whole, or failed for once", async () => {
  for (const dumpError of [undefined, new Error("no answer")]) {
    const clock = new FakeClock();
    const conntrack = new FakeConntrack();
    conntrack.flows = [good, gone];
    conntrack.interruptions = 2;
    conntrack.dumpError = dumpError;
    const options = { conntrack, clock, metrics: new RecordingMetrics(), log: silentLogger, state: served(true) };
    new StaleFlows({ ...options, family: "IPv4", turns, signal: NEVER }).look(NONE);
    await clock.settle();
    assert.deepEqual(conntrack.flows, [good, gone]);
    conntrack.dumpError = undefined;
    await clock.advance(10_000);
    assert.deepEqual(conntrack.flows, [good]);
  }
});

function lookOver(conntrack: FakeConntrack, clock: FakeClock): StaleFlows {
  const options = { conntrack, clock, metrics: new RecordingMetrics(), log: silentLogger, state: served(true) };
  return new StaleFlows({ ...options, family: "IPv4", turns: new Mutex(), signal: NEVER });
}

it("a flow to a Service that is gone, refused once, is deleted with the next look", async () => {
  const conntrack = new FakeConntrack();
  const clock = new FakeClock();
  const left = flow("10.0.0.2", "10.1.0.2", 1);
  conntrack.flows = [left];
  conntrack.stuck.add(left);
  const flows = lookOver(conntrack, clock);
  flows.look(new Set(["udp 10.0.0.2:80"]));
  await clock.advance(10_000);
  assert.deepEqual(conntrack.flows, [left]);
  conntrack.stuck.clear();
  for (let n = 0; n < 5; n++) {
    flows.look(NONE);
    await clock.advance(10_000);
  }
  assert.deepEqual(conntrack.flows, [], "what was to be ended is forgotten");
});

it("a flow to an endpoint that is gone, refused once, is tried again", async () => {
  const conntrack = new FakeConntrack();
  const clock = new FakeClock();
  const left = flow("10.0.0.1", "10.1.0.2", 1);
  conntrack.flows = [left];
  conntrack.stuck.add(left);
  const flows = lookOver(conntrack, clock);
  flows.look(NONE);
  await clock.advance(500);
  conntrack.stuck.clear();
  await clock.advance(600_000);
  assert.deepEqual(
    conntrack.flows,
    [],
    "the client's datagrams go to a pod that is gone until another UDP endpoint changes",
  );
});

it("every call of look is followed by a reading of the table, whenever it comes", async () => {
  for (let ticks = 0; ticks < 40; ticks++) {
    const conntrack = new FakeConntrack();
    const clock = new FakeClock();
    const flows = lookOver(conntrack, clock);
    flows.look(NONE);
    // This many promise turns after the first look begins, a sync ends that removed the endpoint of this flow.
    for (let n = 0; n < ticks; n++) await Promise.resolve();
    const stale = flow("10.0.0.1", "10.1.0.2", 1);
    conntrack.flows = [stale];
    flows.look(NONE);
    await clock.advance(60_000);
    assert.deepEqual(conntrack.flows, [], `the look that came ${ticks} turns after another was forgotten`);
  }
});
