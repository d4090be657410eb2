import assert from "node:assert/strict";
import { test } from "node:test";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import type { Clock } from "../../async/clock.ts";
import { encode, putNumber } from "../../kernel/bpf/layout.ts";
import { eventually } from "../../kernel/bpf/testing/eventually.ts";
import type { Disconnection, StaleSocket } from "../../kernel/sock-diag/disconnect-udp.ts";
import { type IpAddress, ipBytes } from "../../net/ip.ts";
import { Connections } from "./connections.ts";
import { BACKEND_VALUE, CONNECTED_KEY, CONNECTED_VALUE, leadingMaps, memoryMaps } from "./socket-balancer/maps.ts";
import { StaleConnections } from "./stale-connections.ts";
import { HURRIED } from "./testing/hurried-clock.ts";

const ENDPOINT = "10.180.0.7" as IpAddress; // a literal in canonical form
const NETNS = 5;

/** Sockets, by cookie, were redirected to backend 1; outcomes are listed attempt by attempt. */
type Outcome = Disconnection | "fails";

function rig(cookies: readonly number[], outcomes: readonly (Outcome | Promise<Outcome>)[], clock: Clock = HURRIED) {
  const bpf = memoryBpf();
  const connected = bpf.createMap(memoryMaps("IPv4", 8).connected);
  const backends = bpf.createMap(leadingMaps("IPv4", { frontends: 4, slots: 4, backends: 4 }).backends);
  const carry = (id: number, generation: number): void =>
    backends.update(index(1), encode(BACKEND_VALUE.IPv4, { address: ipBytes(ENDPOINT), port: 53, id, generation }));
  const connect = (cookie: number): void => {
    const value = encode(CONNECTED_VALUE.IPv4, { netns: NETNS, address: ipBytes(ENDPOINT), port: 53, backend: 1 });
    const backend = backends.lookup(index(1)) ?? new Uint8Array();
    value.set(backend.subarray(BACKEND_VALUE.IPv4.fields.id.at), CONNECTED_VALUE.IPv4.fields.identity.at);
    connected.update(encode(CONNECTED_KEY, { cookie }), value);
  };
  carry(9, 1);
  for (const cookie of cookies) connect(cookie);
  const asked: (readonly StaleSocket[])[] = [];
  const log: LogLine[] = [];
  let [disconnected, unreachable] = [0, 0];
  const connections = new Connections("IPv4", () => ({ connected, backends }));
  const stale = new StaleConnections({
    connections,
    disconnector: {
      disconnect: async (sockets) => {
        asked.push(sockets);
        const outcome = (await outcomes[asked.length - 1]) ?? "absent";
        if (outcome === "fails") throw new Error("there is no descriptor left");
        return sockets.map(() => outcome);
      },
    },
    onDisconnected: (count) => {
      disconnected += count;
    },
    onUnreachable: () => {
      unreachable++;
    },
    log: recordingLogger(log),
    clock,
  });
  const counts = { disconnected: () => disconnected, unreachable: () => unreachable };
  return { stale, connected, connections, carry, connect, asked, log, ...counts };
}

const index = (number: number): Uint8Array => new Uint8Array(Uint32Array.of(number).buffer);

function cookieOf(number: number): Uint8Array {
  const bytes = new Uint8Array(8);
  putNumber(bytes, CONNECTED_KEY.fields.cookie, number);
  return bytes;
}

test("of sockets that were led, those are told whose backend carries another identity", async () => {
  const { stale, connections, carry, connect, asked, disconnected } = rig([71, 72], ["disconnected"]);
  await stale.disconnect();
  assert.deepEqual(asked, [], "all endpoints serve");
  carry(9, 2);
  connect(73);
  await stale.disconnect();
  const told = asked.flat().map(({ cookie, netns, remote, remotePort }) => [cookie, netns, remote, remotePort]);
  assert.deepEqual(told, [
    [71n, 5n, ENDPOINT, 53],
    [72n, 5n, ENDPOINT, 53],
  ]);
  assert.deepEqual([disconnected(), connections.count], [2, 1]);
});

test("a socket that is just connecting is found at the second look", async () => {
  const { stale, connections, carry, asked, disconnected } = rig([71], ["absent", "disconnected"]);
  carry(9, 2);
  await stale.disconnect();
  await eventually(() => assert.equal(disconnected(), 1));
  assert.deepEqual([asked.length, connections.count], [2, 0]);
});

test("what is not there at the second look either is forgotten", async () => {
  const { stale, connections, carry, unreachable, log } = rig([71], ["absent", "absent"]);
  carry(9, 2);
  await stale.disconnect();
  assert.equal(connections.count, 1);
  await eventually(() => assert.equal(connections.count, 0));
  assert.deepEqual([log, unreachable()], [[], 0]);
});

test("a look that fails is repeated until it has worked", async (t) => {
  const { stale, connections, carry, asked, disconnected, log } = rig(
    [71],
    ["fails", "fails", "fails", "disconnected"],
  );
  t.after(() => stale.close());
  carry(9, 2);
  await stale.disconnect();
  await eventually(() => assert.equal(disconnected(), 1));
  assert.deepEqual([asked.length, connections.count], [4, 0]);
  assert.deepEqual(
    log.map(({ message }) => message),
    ["Looking for UDP sockets whose endpoint is gone failed"],
    "said once",
  );
});

test("a network namespace that is not found is reported, and said once", async () => {
  const { stale, connections, carry, connect, unreachable, log } = rig([71], Array(4).fill("unreachable"));
  for (const generation of [2, 4]) {
    carry(9, generation);
    await stale.disconnect();
    await eventually(() => assert.equal(connections.count, 0));
    connect(72);
  }
  assert.equal(unreachable(), 2);
  assert.equal(log.length, 1);
  assert.match(log[0]?.message ?? "", /^Connected UDP sockets keep an endpoint that is gone/);
});

test("looks that come with every change of the cluster do not put the second look off", async () => {
  const clock = new FakeClock();
  const { stale, connections, carry, connect, unreachable } = rig([71], Array(20).fill("unreachable"), clock);
  carry(9, 2);
  for (let changes = 0; changes < 3; changes++) {
    await stale.disconnect();
    await clock.advance(400);
    // A socket that is still connecting gets a full second.
    if (changes !== 1) continue;
    connect(72);
    carry(9, 4);
  }
  assert.deepEqual([connections.count, unreachable()], [1, 1]);
  await clock.advance(1_000);
  assert.deepEqual([connections.count, clock.timerCount], [0, 0]);
});

test("a socket that a long look was the first for has a second of its own", async () => {
  const clock = new FakeClock();
  const long = Promise.withResolvers<Disconnection>();
  const { stale, connections, carry, connect } = rig([71], ["absent", long.promise], clock);
  carry(9, 2);
  await stale.disconnect();
  connect(72);
  carry(9, 4);
  const first = stale.disconnect();
  // Meanwhile the other socket's second attempt is due.
  await clock.advance(1_000);
  long.resolve("absent");
  await first;
  await clock.advance(0);
  assert.equal(connections.count, 1);
  await clock.advance(1_000);
  assert.equal(connections.count, 0);
});

test("a socket that connects again at any moment keeps its new record", async () => {
  const subject = rig([71, 72], ["disconnected", "disconnected"]);
  const { stale, connected, connections, carry, connect, asked } = subject;
  // The client wakes up from its disconnection between any two calls of ours.
  for (const call of ["lookup", "delete"] as const) {
    const work = connected[call].bind(connected);
    connected[call] = (key: Uint8Array): never => {
      const result = work(key);
      if (call === "lookup") connect(71);
      return result as never;
    };
  }
  carry(9, 2);
  await stale.disconnect();
  connect(72);
  assert.equal(connected.entries().length, 2);
  carry(9, 3);
  connect(71);
  carry(9, 4);
  await stale.disconnect();
  assert.deepEqual(
    asked.map((sockets) => sockets.length),
    [2, 2],
  );
  assert.equal(connections.count, 0);
});

test("user space deletes no record: the program does, once the socket closes or connects elsewhere", async () => {
  const { stale, connected, connections, carry, asked } = rig([71], ["disconnected"]);
  carry(9, 2);
  await stale.disconnect();
  await stale.disconnect();
  assert.deepEqual([asked.length, connections.count, connected.entries().length], [1, 0, 1], "told once, not counted");
  connected.delete(cookieOf(71));
  carry(9, 3);
  assert.deepEqual(connections.lost(), []);
});

test("at the end all are told, and nothing is looked for later", async () => {
  const { stale, carry, asked } = rig([71, 72], ["absent", "disconnected"]);
  carry(9, 2);
  await stale.disconnect();
  await stale.disconnectAll();
  await stale.disconnect();
  assert.deepEqual(
    asked.map((sockets) => sockets.length),
    [2, 2],
  );
});

test("what the next process looks for is left to it", async () => {
  const { stale, connections, carry, asked } = rig([71], ["absent", "absent"]);
  carry(9, 2);
  await stale.disconnect();
  stale.close();
  await stale.disconnect();
  assert.deepEqual([asked.length, connections.count], [1, 1]);
});
