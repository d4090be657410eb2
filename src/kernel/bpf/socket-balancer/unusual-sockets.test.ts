/** Sockets that connect and send in ways of their own, with the programs attached and no rules underneath. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PATIENCE } from "../../../../testkit/support/patience.ts";
import type { IpAddress } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { kernelBpf } from "../kernel-bpf.ts";
import { eventually } from "../testing/eventually.ts";
import { reasonToSkip, testCgroup } from "../testing/test-cgroup.ts";
import { socketPrograms } from "./programs.ts";
import { startDialler } from "./testing/dialler.ts";
import { fillMaps, openMaps, testMaps } from "./testing/dialling.ts";

const VIP = "10.96.0.1" as IpAddress; // canonical literals
const LOCAL = "127.0.0.1" as IpAddress;
const { TCP, UDP } = PROTOCOL_NUMBERS;

test("unusual sockets", { skip: reasonToSkip(), timeout: 60_000 * PATIENCE }, async (t) => {
  const bpf = kernelBpf();
  const cgroup = testCgroup(t);
  const dialler = await startDialler(t, cgroup);
  const tcp = await dialler.listen("tcp", LOCAL);
  const udp = await dialler.listen("udp", LOCAL);
  const definitions = testMaps("IPv4");
  const maps = openMaps(bpf, definitions);
  const frontend = (protocol: number, port: number, at: number) => ({
    ...{ address: VIP, port, protocol },
    endpoints: [{ address: LOCAL, port: at }],
  });
  fillMaps(maps, [frontend(TCP, 80, tcp), frontend(UDP, 53, udp)], "IPv4");
  const opened: { close(): void }[] = [...Object.values(maps)];
  t.after(() => opened.toReversed().map((one) => one.close()));
  for (const [hook, program] of socketPrograms("IPv4", definitions, { hostCookie: 1n })) {
    const loaded = bpf.loadProgram(program, hook, Object.values(maps));
    opened.push(loaded, bpf.attach(loaded, hook, cgroup));
  }

  await t.test(
    "a stream of several paths is led; of its peer nothing is revealed, because its paths have cookies of their own",
    async (sub) => {
      const met = await dialler.dial("multipath", { address: VIP, port: 80 });
      if (met.code?.startsWith("socket: ") === true) sub.skip(`no MPTCP here: ${met.code}`);
      else assert.deepEqual(met, { reached: tcp, peer: `${LOCAL} ${tcp}` });
    },
  );

  await t.test("a stream that sends with what connects is led (TCP fast open)", async () => {
    const met = await dialler.dial("fast open", { address: VIP, port: 80 });
    assert.deepEqual(met, { reached: tcp, peer: `${VIP} 80` });
  });

  await t.test("a stream is remembered as long as its socket is open", async () => {
    const before = maps.tcpPeers.entries().length;
    for (let times = 0; times < 20; times += 1) {
      assert.deepEqual(await dialler.dial("tcp", { address: VIP, port: 80 }), { reached: tcp, peer: `${VIP} 80` });
    }
    await eventually(() => assert.equal(maps.tcpPeers.entries().length, before, "what is closed is forgotten"));
  });

  await t.test(
    "a datagram to an address is led, whether its socket was led or went to the endpoint by itself",
    async () => {
      const connected: [string, number][] = [
        [VIP, 53],
        [LOCAL, udp],
      ];
      for (const to of connected) {
        assert.deepEqual(await dialler.sendBesides(to, [VIP, 53]), { reached: udp, peer: `${VIP} 53` });
      }
    },
  );

  await t.test("thousands of sockets of others do not change where a pending answer comes from", async () => {
    const room = definitions.flows.maxEntries;
    const answer = { reached: udp, peer: `${VIP} 53` };
    assert.deepEqual(await dialler.sendBesides(null, [VIP, 53], 3 * room), answer, "they are closed at once");
    assert.equal(maps.flows.entries().length, 0, "what is closed is forgotten");
    assert.deepEqual(await dialler.sendBesides(null, [VIP, 53], 2 * room, 2 * room), answer, "they stay open");
    assert.equal(maps.flows.entries().length, 0);
    assert.deepEqual(await dialler.dial("datagram", { address: VIP, port: 53 }), answer);
  });

  await t.test("a datagram that a connected socket sends does not change which endpoint it is told of", async () => {
    const [, value] = maps.connected.entries()[0] ?? [];
    assert.equal(value, undefined, "all of them are closed");
    await dialler.hold("held", { address: VIP, port: 53 });
    assert.deepEqual(await dialler.ask("held"), { reached: udp });
    assert.equal(maps.connected.entries().length, 1);
  });
});
