import assert from "node:assert/strict";
import { test } from "node:test";
import { OwnDials } from "./own-dials.ts";
import type { Destination } from "./relay.ts";
import { LOOPBACK } from "./testing/relay-lab.ts";

const at = (port: number): Destination => ({ address: LOOPBACK, port });

test("a connection that comes back again and again is a loop in the end", () => {
  const dials = new OwnDials();
  const stranger = at(1000);
  assert.ok(!dials.isLoop(stranger));
  let client = stranger;
  let hops = 0;
  while (!dials.isLoop(client)) {
    const local = at(client.port + 1);
    dials.add(local, client);
    client = local;
    hops++;
  }
  assert.equal(hops, 32);
});

test("a closed connection is known for a moment, and forgotten when its port may be another's", () => {
  let nowMs = 0;
  const dials = new OwnDials(() => nowMs);
  let close = dials.add(at(1), at(0));
  for (let hop = 1; hop < 32; hop++) {
    close();
    close = dials.add(at(hop + 1), at(hop));
  }
  close();
  nowMs += 199;
  dials.add(at(100), at(99));
  assert.ok(dials.isLoop(at(32)));
  nowMs += 1;
  dials.add(at(101), at(99));
  assert.ok(!dials.isLoop(at(32)));
  assert.equal(dials.size, 2);
});
