/** `kube-proxy flows --watch` when messages are lost, and when Services go away. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { FlowFilter, TrackedFlow } from "../../src/kernel/conntrack/conntrack.ts";
import type { FlowEvents } from "../../src/kernel/conntrack/netlink-conntrack.ts";
import { servicePortName } from "../../src/model/service-port-name.ts";
import { familyOf, type IpAddress, parseIpAddress } from "../../src/net/ip.ts";
import { type Asked, type FlowSource, FlowWatch, listFlows } from "../../src/tools/cli/flows-watch.ts";
import { FlowNamer, type NamedFlow } from "../../src/tools/explain/flows.ts";

const ip = (text: string): IpAddress => parseIpAddress(text) ?? assert.fail(text);
const NODE = ip("10.200.0.2");
const CLUSTER_IP = ip("10.96.0.10");
const CHOICE = { service: undefined, from: undefined, to: undefined, state: undefined, isStale: false };

function namerOf(frontends: readonly (readonly [IpAddress | undefined, number])[]): FlowNamer {
  const port = {
    name: servicePortName("shop", "web", "http", "TCP"),
    family: "IPv4" as const,
    frontends: frontends.map(([address, number]) => ({ address, port: number, count: { open: null, counted: null } })),
    endpoints: [],
  };
  const ports = frontends.length === 0 ? [] : [port];
  return new FlowNamer({ ports, pods: new Map(), own: new Set([NODE]), isEndpointTracked: true }, CHOICE);
}

function flow(id: number, destinationPort = 80): TrackedFlow {
  return {
    ...{ protocol: "TCP", sourceIP: ip("10.180.0.77"), sourcePort: 40_000 + id, id, state: "ESTABLISHED" },
    ...{ destinationIP: CLUSTER_IP, destinationPort, replySourceIP: ip("10.180.0.11"), replySourcePort: 8080 },
    ...{ replyDestinationIP: ip("10.180.0.77"), replyDestinationPort: 40_000 + id, isAnswered: true, isAssured: true },
  };
}

/** A table that filters as the kernel does. */
function table(entries: readonly TrackedFlow[]): ReturnType<FlowSource["open"]> {
  const passes = (one: TrackedFlow, { protocol, address, port }: FlowFilter): boolean =>
    (protocol ?? one.protocol) === one.protocol &&
    (address ?? one.destinationIP) === one.destinationIP &&
    (port ?? one.destinationPort) === one.destinationPort;
  return {
    async readFlows(family, filter, begin) {
      const visit = begin();
      for (const one of entries) if (familyOf(one.sourceIP) === family && passes(one, filter)) visit(one);
      return true;
    },
    [Symbol.asyncDispose]: async () => {},
  };
}

function sinkOf(told: NamedFlow[]) {
  return { isFull: false, tell: (one: NamedFlow) => void told.push(one), close: async () => {} };
}

const source = (entries: readonly TrackedFlow[], follow: (events: FlowEvents) => Promise<void>): FlowSource => ({
  open: () => table(entries),
  follow,
  ownAddresses: async () => new Set([NODE]),
});

test("a connection is told once where the node port has the number of the port", async () => {
  const namer = namerOf([
    [CLUSTER_IP, 30_080],
    [undefined, 30_080],
  ]);
  const told: NamedFlow[] = [];
  const asked: Asked = { namer: async () => namer, led: async () => [] };
  await listFlows(
    namer,
    asked,
    source([flow(1, 30_080)], async () => {}),
    sinkOf(told),
  );
  assert.equal(told.length, 1);
});

test("what was there before the watch has not begun when the kernel loses messages", async () => {
  const namer = namerOf([[CLUSTER_IP, 80]]);
  const asked: Asked = { namer: async () => namer, led: async () => [] };
  const [old, young] = [flow(1), flow(2)];
  const entries = [old];
  const told: NamedFlow[] = [];
  const follow = async ({ onLost }: FlowEvents): Promise<void> => {
    await sleep(20);
    entries.push(young);
    onLost();
    await sleep(20);
  };
  await new FlowWatch(namer, { asked, source: source(entries, follow), sink: sinkOf(told), note() {} }).run();
  assert.deepEqual(
    told.map(({ client }) => client),
    ["10.180.0.77:40002"],
  );
});

test("a connection that begins again after it was told from the table is told", async () => {
  const namer = namerOf([[CLUSTER_IP, 80]]);
  const asked: Asked = { namer: async () => namer, led: async () => [] };
  const told: NamedFlow[] = [];
  const entries: TrackedFlow[] = [];
  const follow = async ({ onLost, onBegin, onEnd }: FlowEvents): Promise<void> => {
    await sleep(20);
    entries.push(flow(1));
    onLost();
    await sleep(20);
    onEnd(flow(1));
    onBegin(flow(1));
  };
  await new FlowWatch(namer, { asked, source: source(entries, follow), sink: sinkOf(told), note() {} }).run();
  assert.deepEqual(
    told.map(({ ended }) => ended),
    [null, "answered", null],
  );
});

test("that no socket can be had after a loss is noted, and does not end the program", async () => {
  const namer = namerOf([[CLUSTER_IP, 80]]);
  const asked: Asked = { namer: async () => namer, led: async () => [] };
  const notes: string[] = [];
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on("unhandledRejection", note);
  const follow = async ({ onLost }: FlowEvents): Promise<void> => {
    onLost();
    await sleep(20);
  };
  const broken: FlowSource = {
    ...source([], follow),
    open: () => {
      throw new Error("socket: EMFILE");
    },
  };
  await new FlowWatch(namer, { asked, source: broken, sink: sinkOf([]), note: (text) => notes.push(text) }).run();
  process.off("unhandledRejection", note);
  assert.deepEqual([unhandled.map(String), notes.length], [[], 2]);
});

test("the end of a connection is told though its Service is gone", async () => {
  let namer = namerOf([[CLUSTER_IP, 80]]);
  const asked: Asked = { namer: async () => namer, led: async () => [] };
  const told: NamedFlow[] = [];
  const follow = async ({ onBegin, onEnd }: FlowEvents): Promise<void> => {
    onBegin(flow(1));
    namer = namerOf([]);
    await sleep(30);
    onEnd(flow(1));
  };
  const every = { refreshMs: 5, lookMs: 10 };
  await new FlowWatch(namer, { asked, source: source([], follow), sink: sinkOf(told), note() {}, times: every }).run();
  assert.deepEqual(
    told.map(({ ended }) => ended),
    [null, "answered"],
  );
});
