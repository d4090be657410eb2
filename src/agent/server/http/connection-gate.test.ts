import assert from "node:assert/strict";
import { test } from "node:test";
import { shareOfServers } from "../../../kernel/share-of-servers.ts";
import { ConnectionGate, type GatedConnection, serverLimits, type Worth } from "./connection-gate.ts";

class Fake implements GatedConnection {
  readonly peer: string;
  value: Worth;
  isClosed = false;
  constructor(peer: string, value: Worth = 0) {
    this.peer = peer;
    this.value = value;
  }
  worth(): Worth {
    return this.value;
  }
  close(): void {
    this.isClosed = true;
  }
}

function filled(gate: ConnectionGate, peer: string, worths: readonly Worth[]): Fake[] {
  return worths.map((worth) => {
    const connection = new Fake(peer, worth);
    assert.ok(gate.enter(connection));
    return connection;
  });
}

const closed = (connections: readonly Fake[]) => connections.map(({ isClosed }) => isClosed);

test("a peer that has its share loses its oldest connection that has asked for nothing", () => {
  const full: string[] = [];
  const gate = new ConnectionGate({ total: 10, perPeer: 3, onFull: (peer) => full.push(peer) });
  const own = filled(gate, "a", [1, 0, 0]);
  const others = filled(gate, "b", [0, 0]);
  assert.ok(gate.enter(new Fake("a")));
  assert.deepEqual(
    [closed(own), closed(others)],
    [
      [false, true, false],
      [false, false],
    ],
  );
  assert.deepEqual([gate.size, full], [5, ["a"]]);
});

test("a full server takes from the peer that has the most, for any new peer", () => {
  const gate = new ConnectionGate({ total: 5, perPeer: 4 });
  const few = filled(gate, "a", [0]);
  const many = filled(gate, "b", [0, 0, 0, 0]);
  assert.ok(gate.enter(new Fake("c")));
  assert.deepEqual([closed(few), closed(many)], [[false], [true, false, false, false]]);
  assert.equal(gate.size, 5);
});

test("kept connections go after unused ones, stalled readers after these, and what is being answered never", () => {
  const gate = new ConnectionGate({ total: 10, perPeer: 4 });
  const own = filled(gate, "a", [3, 2, 1, 0]);
  const gone: number[] = [];
  for (let round = 0; round < 3; round++) {
    filled(gate, "a", [3]);
    gone.push(own.filter(({ isClosed }) => isClosed).length);
  }
  assert.deepEqual(
    [gone, closed(own)],
    [
      [1, 2, 3],
      [false, true, true, true],
    ],
  );
  assert.equal(gate.enter(new Fake("a")), false);
  assert.equal(gate.enter(new Fake("b")), true);
});

test("what was used last goes last among its like; one that has left makes room", () => {
  const gate = new ConnectionGate({ total: 10, perPeer: 2 });
  const [first, second] = filled(gate, "a", [1, 1]);
  assert.ok(first !== undefined && second !== undefined);
  gate.touch(first);
  filled(gate, "a", [1]);
  assert.deepEqual([first.isClosed, second.isClosed], [false, true]);
  gate.leave(first);
  gate.leave(first);
  assert.equal(gate.size, 1);
});

test("three quarters of the descriptors are never given to connections of the servers", () => {
  for (const limit of [128, 200, 1024, 6144, 64_000, Number.POSITIVE_INFINITY]) {
    const { health, metrics, serviceHealth } = serverLimits(limit);
    const sum = health.total + metrics.total + serviceHealth.total;
    assert.ok(sum <= shareOfServers(limit) && sum <= limit / 4, `${sum} of ${limit}`);
    for (const { total, perPeer } of [health, metrics, serviceHealth]) assert.ok(perPeer >= 2 && perPeer <= total / 2);
  }
  assert.deepEqual(serverLimits(64_000), {
    health: { total: 256, perPeer: 64 },
    metrics: { total: 256, perPeer: 64 },
    serviceHealth: { total: 1024, perPeer: 256 },
  });
});
