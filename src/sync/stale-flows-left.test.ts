import assert from "node:assert/strict";
import { it } from "node:test";
import { Mutex } from "../async/mutex.ts";
import { silentLogger } from "../logging/logger.ts";
import { ProxyState } from "../model/proxy-state.ts";
import type { Flow } from "../net/flow.ts";
import { parseIpAddress } from "../net/ip.ts";
import { StaleFlows } from "./stale-flows.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { FakeConntrack, RecordingMetrics } from "./testing/recorders.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

const NONE: ReadonlySet<string> = new Set();
const NEVER = new AbortController().signal;
const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);

function flow(destination: string, replier: string, sourcePort: number): Flow {
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

/** A UDP service 10.0.0.1:80 whose only endpoint is 10.1.0.1:8080. */
function served(): ProxyState {
  const state = new ProxyState({
    family: "IPv4",
    nodeName: "",
    allowExternalIPs: true,
    now: () => 0,
    log: silentLogger,
  });
  const ports = [{ name: "p", protocol: "UDP", port: 80, nodePort: 0 }] as const;
  state.onService({ kind: "add", object: serviceRecord("a", { ports }) });
  const slice = sliceRecord("a", [], {
    endpoints: [endpointRecord("10.1.0.1")],
    ports: [{ name: "p", protocol: "UDP", port: 8080 }],
  });
  state.onEndpointSlice({ kind: "add", object: slice });
  state.applyChanges();
  return state;
}

function lookOver(conntrack: FakeConntrack, clock: FakeClock): StaleFlows {
  const options = { conntrack, clock, metrics: new RecordingMetrics(), log: silentLogger, state: served() };
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
    // So many turns of promises after the first look has begun, a sync ends that removed the endpoint of this flow.
    for (let n = 0; n < ticks; n++) await Promise.resolve();
    const stale = flow("10.0.0.1", "10.1.0.2", 1);
    conntrack.flows = [stale];
    flows.look(NONE);
    await clock.advance(60_000);
    assert.deepEqual(conntrack.flows, [], `the look that came ${ticks} turns after another was forgotten`);
  }
});
