/** Held ports that are wanted both at all addresses and at single ones. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryRelays } from "../../../testkit/fakes/relay/memory-relays.ts";
import { ip } from "../../model/testing/records.ts";
import { HeldPorts } from "./held-ports.ts";
import { BackendRig, proxyPortOf } from "./testing/backend-rig.ts";

const EVERYWHERE = { protocol: "TCP", address: ip("0.0.0.0"), port: 30080 } as const;
const HERE = { ...EVERYWHERE, address: ip("192.168.1.5") };

function open({ sockets }: MemoryRelays): readonly string[] {
  return sockets.map(({ use, protocol, address, port }) => `${use} ${protocol} ${address}:${port}`);
}

for (const [first, second] of [
  [EVERYWHERE, HERE],
  [HERE, EVERYWHERE],
] as const) {
  test(`held at ${first.address} and then at ${second.address}: one socket, and what stays wanted stays held`, async () => {
    const relays = new MemoryRelays();
    const held = new HeldPorts(relays);
    await held.hold("a", first);
    await held.hold("b", second);
    assert.deepEqual(open(relays), ["held TCP 0.0.0.0:30080"]);
    await held.hold("c", { ...HERE, protocol: "UDP" });
    assert.deepEqual(open(relays).length, 2);
    await held.keepOnly(first === EVERYWHERE ? "a" : "b", []);
    assert.deepEqual([...open(relays)].sort(), ["held TCP 192.168.1.5:30080", "held UDP 192.168.1.5:30080"]);
    await held.close();
    assert.deepEqual(open(relays), []);
  });
}

test("where every address cannot be had, a single one is held as before; where that is taken, the next hold says so", async () => {
  const relays = new MemoryRelays();
  const held = new HeldPorts(relays);
  await held.hold("a", HERE);
  const other = relays.takePort("TCP", ip("127.0.0.1"), 30080);
  await assert.rejects(held.hold("b", EVERYWHERE), { code: "port_in_use" });
  assert.deepEqual(open(relays), ["other TCP 127.0.0.1:30080", "held TCP 192.168.1.5:30080"]);
  other[Symbol.dispose]();
  await held.hold("b", EVERYWHERE);
  relays.failWith = () => "port_in_use";
  await held.keepOnly("b", []);
  assert.deepEqual(open(relays), []);
  await assert.rejects(held.hold("a", HERE), { code: "port_in_use" });
  relays.failWith = () => undefined;
  await held.hold("a", HERE);
  assert.deepEqual(open(relays), ["held TCP 192.168.1.5:30080"]);
});

test("a Service whose external IP is the node's own is served there, also where its port is its node port", async () => {
  const rig = new BackendRig();
  rig.set("web", { port: 30080, nodePort: 30080, externalIPs: [ip("192.168.1.5")] });
  assert.deepEqual((await rig.sync()).failures, []);
  assert.notEqual(proxyPortOf(rig, "192.168.1.5", 30080), undefined);
  assert.ok(rig.openSockets.includes("held TCP 0.0.0.0:30080"));
  rig.set("web", { port: 30080, externalIPs: [ip("192.168.1.5")] });
  assert.deepEqual((await rig.sync()).failures, []);
  assert.ok(rig.openSockets.includes("held TCP 192.168.1.5:30080"));
  rig.set("web", { port: 30080, nodePort: 30080, externalIPs: [ip("192.168.1.5")] });
  assert.deepEqual((await rig.sync()).failures, []);
  assert.ok(rig.openSockets.includes("held TCP 0.0.0.0:30080"));
});
