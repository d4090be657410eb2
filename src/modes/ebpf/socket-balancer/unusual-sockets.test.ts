/** Sockets that connect and send in unusual ways, with programs attached and no rules. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { PATIENCE } from "../../../../testkit/support/patience.ts";
import { kernelBpf } from "../../../kernel/bpf/kernel-bpf.ts";
import { eventually } from "../../../kernel/bpf/testing/eventually.ts";
import { reasonToSkip, testCgroup } from "../../../kernel/bpf/testing/test-cgroup.ts";
import type { IpAddress } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { socketPrograms } from "./programs.ts";
import { type Dialler, startDialler } from "./testing/dialler.ts";
import type { DialReport } from "./testing/dialler-side.ts";
import { fillMaps, leadNamespaces, type OpenMaps, openMaps, testMaps } from "./testing/dialling.ts";

const VIP = "10.96.0.1" as IpAddress; // literals in canonical form
const LOCAL = "127.0.0.1" as IpAddress;
const { TCP, UDP } = PROTOCOL_NUMBERS;

/** Attaches programs that redirect the Service's ports to ports of the client's own namespace. */
function lead(
  t: TestContext,
  cgroup: string,
  ports: readonly (readonly [protocol: number, port: number, to: number])[],
  hostCookie = 1n,
): OpenMaps {
  const bpf = kernelBpf();
  const definitions = testMaps("IPv4");
  const maps = openMaps(bpf, definitions);
  const frontends = ports.map(([protocol, port, to]) => ({
    ...{ address: VIP, port, protocol },
    endpoints: [{ address: LOCAL, port: to }],
  }));
  fillMaps(maps, frontends, "IPv4");
  const opened: { close(): void }[] = [...Object.values(maps)];
  t.after(() => opened.toReversed().map((one) => one.close()));
  for (const [hook, program] of socketPrograms("IPv4", definitions, { hostCookie })) {
    const loaded = bpf.loadProgram(program, hook, Object.values(maps));
    opened.push(loaded, bpf.attach(loaded, hook, cgroup));
  }
  return maps;
}

test("unusual sockets", { skip: reasonToSkip(), timeout: 60_000 * PATIENCE }, async (t) => {
  const cgroup = testCgroup(t);
  const dialler = await startDialler(t, cgroup);
  const tcp = await dialler.listen("tcp", LOCAL);
  const udp = await dialler.listen("udp", LOCAL);
  const maps = lead(t, cgroup, [
    [TCP, 80, tcp],
    [UDP, 53, udp],
  ]);
  leadNamespaces(maps, await dialler.netnsCookie());

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

  await t.test(
    "a socket that was led, and then goes to that endpoint by itself, has the endpoint for its peer",
    async () => {
      for (const [protocol, port, to] of [
        ["tcp", 80, tcp],
        ["udp", 53, udp],
      ] as const) {
        const [service, endpoint] = [`${VIP} ${port}`, `${LOCAL} ${to}`];
        const met = await dialler.dialInSuccession(protocol, [
          [VIP, port],
          [LOCAL, to],
          [VIP, port],
        ]);
        assert.deepEqual(met, [service, endpoint, service]);
      }
    },
  );

  await t.test("a stream is remembered as long as its socket is open", async () => {
    const before = maps.tcpPeers.entries().length;
    for (let times = 0; times < 20; times += 1) {
      assert.deepEqual(await dialler.dial("tcp", { address: VIP, port: 80 }), { reached: tcp, peer: `${VIP} 80` });
    }
    // A socket that an earlier test closed may disappear meanwhile.
    await eventually(() => assert.ok(maps.tcpPeers.entries().length <= before, "what is closed is forgotten"));
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
    const room = maps.flows.definition.maxEntries;
    const answer = { reached: udp, peer: `${VIP} 53` };
    /** The other sockets' datagrams may fill the server's queue for a while. */
    const answered = async (): Promise<DialReport> => {
      const met = await dialler.dial("datagram", { address: VIP, port: 53 });
      return met.code === "silence" ? await answered() : met;
    };
    assert.deepEqual(await dialler.sendBesides(null, [VIP, 53], 3 * room), answer, "they are closed at once");
    assert.equal(maps.flows.entries().length, 0, "what is closed is forgotten");
    await answered();
    assert.deepEqual(await dialler.sendBesides(null, [VIP, 53], 2 * room, 2 * room), answer, "they stay open");
    assert.equal(maps.flows.entries().length, 0);
    assert.deepEqual(await answered(), answer);
  });

  await t.test("a datagram that a connected socket sends does not change which endpoint it is told of", async () => {
    const [, value] = maps.connected.entries()[0] ?? [];
    assert.equal(value, undefined, "all of them are closed");
    await dialler.hold("held", { address: VIP, port: 53 });
    assert.deepEqual(await dialler.ask("held"), { reached: udp });
    assert.equal(maps.connected.entries().length, 1);
  });
});

test("a network namespace has its share of the room for UDP, and the host's has all of it", {
  skip: reasonToSkip(),
  timeout: 60_000 * PATIENCE,
}, async (t) => {
  const cgroup = testCgroup(t);
  const [greedy, modest, host] = [
    await startDialler(t, cgroup),
    await startDialler(t, cgroup),
    await startDialler(t, cgroup),
  ];
  const [atGreedy, alsoAtGreedy, atModest, atHost] = [
    await greedy.listen("udp", LOCAL),
    await greedy.listen("udp", LOCAL),
    await modest.listen("udp", LOCAL),
    await host.listen("udp", LOCAL),
  ];
  const ports = [
    [UDP, 53, atGreedy],
    [UDP, 54, atModest],
    [UDP, 55, atHost],
    [UDP, 56, alsoAtGreedy],
  ] as const;
  const maps = lead(t, cgroup, ports, await host.netnsCookie());
  const { flows, connected, ledNamespaces } = maps;
  leadNamespaces(maps, await greedy.netnsCookie(), await modest.netnsCookie());
  const inGreedy = ["nsenter", "--target", `${greedy.pid}`, "--net"];
  // The rules that serve what programs pass; the other namespaces have none, and no route.
  const rules = `add table ip t; add chain ip t output { type nat hook output priority -100; }
    add rule ip t output ip daddr ${VIP} udp dport 53 dnat to ${LOCAL}:${atGreedy}`;
  run([...inGreedy, "ip", "route", "add", VIP, "dev", "lo", "src", LOCAL]);
  run([...inGreedy, "nft", rules]);
  const hold = async (of: Dialler, count: number, port: number): Promise<void> => {
    for (let number = 0; number < count; number++) {
      assert.deepEqual(await of.hold(`${number}`, { address: VIP, port }), {}, `socket ${number} to ${port}`);
    }
  };
  const drop = async (of: Dialler, count: number): Promise<void> => {
    for (let number = 0; number < count; number++) await of.drop(`${number}`);
  };
  const counted = (): number => ledNamespaces.entries().filter(([, count]) => count.some((byte) => byte !== 0)).length;
  const room = flows.definition.maxEntries;
  const share = room / 4;

  await hold(greedy, 1, 53);
  await hold(modest, 1, 54);
  await drop(modest, 1);
  await hold(greedy, room + 1, 53);
  await hold(modest, 1, 54);
  assert.deepEqual(await modest.ask("0"), { reached: atModest }, "led: it has neither a route nor rules");
  assert.deepEqual(
    [flows, connected].map((map) => map.entries().length),
    [share + 1, share + 1],
  );
  assert.deepEqual(await greedy.ask("0"), { reached: atGreedy }, "led");
  assert.deepEqual(await greedy.ask(`${room}`), { reached: atGreedy }, "by the rules");
  const surplus = await greedy.dial("datagram", { address: VIP, port: 53 });
  assert.deepEqual(surplus, { reached: atGreedy, peer: `${VIP} 53` }, "by the rules");
  await hold(host, share + 1, 55);
  assert.equal(flows.entries().length, 2 * share + 2);

  await drop(greedy, room + 1);
  await eventually(() => assert.equal(flows.entries().length, share + 2, "what is closed is forgotten"));
  await hold(greedy, 1, 56);
  assert.deepEqual(await greedy.ask("0"), { reached: alsoAtGreedy }, "led: there are no rules for this port");
  await hold(greedy, 1, 53);
  assert.deepEqual(await greedy.ask("0"), { reached: atGreedy });
  assert.equal(flows.entries().length, share + 4, "a socket that asks two Services has two flows");
  for (const one of [greedy, modest]) await drop(one, 1);
  await drop(host, share + 1);
  await eventually(() => assert.equal(flows.entries().length, 0));
  assert.equal(counted(), 0);
});

const run = ([command = "", ...args]: readonly string[]): void => void execFileSync(command, args, { stdio: "pipe" });
