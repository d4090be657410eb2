import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, type TestContext, test } from "node:test";
import { type Connection, ConnectionTable } from "../../../../testkit/fakes/bpf/connection-table.ts";
import { interpret } from "../../../../testkit/fakes/bpf/interpreter.ts";
import { memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import { MemoryMap } from "../../../../testkit/fakes/bpf/memory-map.ts";
import { namespacePath } from "../../../../testkit/net/network-namespace.ts";
import fc from "../../../../testkit/support/fast-check.ts";
import { type Cidr, type IpAddress, type IpFamily, ipBytes, ipFromBytes } from "../../../net/ip.ts";
import { inNetworkNamespace } from "../../network-namespace.ts";
import { FIB_LOOKUP, PACKET, TCX_NEXT } from "../contexts.ts";
import { kernelBpf } from "../kernel-bpf.ts";
import { encode } from "../layout.ts";
import { reasonToSkip } from "../testing/test-cgroup.ts";
import { packetProgram } from "./lead-packet.ts";
import {
  type Expected,
  fillPacketMaps,
  frameBytes,
  NETWORK,
  openPacketMaps,
  PacketOracle,
  type Place,
  packetBytes,
  type Scene,
  sceneOf,
  type TestPacket,
  testPacketMaps,
} from "./testing/packets.ts";

const FAMILIES = ["IPv4", "IPv6"] as const;
const PACKET_TYPES = { IPv4: 0x0800, IPv6: 0x86dd } as const;
/** Of a look for a route: there is none, or it leads to the machine itself. */
const NOT_FORWARDED = 4;
const podRange = (family: IpFamily): Cidr => NETWORK[family].pods as Cidr; // it is one

/** Where a packet was led: what the table has of its connection. */
interface Led {
  readonly place: Place;
  readonly source: IpAddress;
}

/** @returns a sentence when it is not as it should be. */
function difference(expected: Expected, led: Led | undefined): string | undefined {
  if (expected.kind === "pass") return led === undefined ? undefined : `led to ${JSON.stringify(led)}`;
  if (led === undefined) return expected.places.some(({ source }) => source === undefined) ? undefined : "not led";
  const found = expected.places.find(
    ({ place }) => place.address === led.place.address && place.port === led.place.port,
  );
  if (found === undefined) return `led to ${JSON.stringify(led)}, which is none of its places`;
  return found.source === led.source ? undefined : `${led.source} instead of ${found.source}`;
}

/** Ports of clients, one for each packet: no connection is another's. */
function numbered(scene: Scene, first: number): Scene {
  return { ...scene, packets: scene.packets.map((one, at) => ({ ...one, from: { ...one.from, port: first + at } })) };
}

/** Answers as the network of the scenes does. */
function routeFor(family: IpFamily): (asked: Uint8Array) => number {
  const length = family === "IPv4" ? 4 : 16;
  const { source, destination } = FIB_LOOKUP.fields;
  return (asked) => {
    const to = ipFromBytes(asked.slice(destination.at, destination.at + length));
    if (!/^10\.180|^fd00:180:/.test(to)) return NOT_FORWARDED;
    asked.set(ipBytes(NETWORK[family].node.split("/")[0] as IpAddress), source.at); // it is one
    return 0;
  };
}

function ledBy({ source, destination }: Connection, family: IpFamily): Led {
  const length = family === "IPv4" ? 4 : 16;
  assert.ok(source !== undefined && destination !== undefined);
  assert.equal(source.port, 0);
  const address = ipFromBytes(destination.address.slice(0, length));
  return { place: { address, port: destination.port }, source: ipFromBytes(source.address.slice(0, length)) };
}

function contextFor(family: IpFamily, values: Readonly<Record<string, number>> = {}): Uint8Array {
  const type = PACKET_TYPES[family];
  return encode(PACKET, { protocol: (type >> 8) | ((type & 0xff) << 8), interfaceIndex: 2, ...values });
}

/** One family's program over maps of a scene, in the interpreter. */
function inMemory(family: IpFamily, scene: Scene) {
  const definitions = testPacketMaps(family);
  const elements = new Map(Object.values(definitions).map((one) => [one.name, new MemoryMap(one)]));
  fillPacketMaps(openPacketMaps(memoryBpf(new Map(), elements), definitions), scene, family);
  const program = packetProgram(family, definitions, { podRange: podRange(family) });
  const connections = new ConnectionTable();
  const route = routeFor(family);
  const meet = (packet: Uint8Array, context = contextFor(family)): Connection | undefined => {
    const before = connections.connections.length;
    const { result } = interpret(program.instructions, context, elements, { packet, connections, route });
    assert.equal(BigInt.asIntN(32, result), BigInt(TCX_NEXT));
    assert.ok(connections.connections.length <= before + 1);
    return connections.connections[before];
  };
  return { meet, connections };
}

for (const family of FAMILIES) {
  describe(`packets of ${family}`, () => {
    const [client, service, pod] = (
      family === "IPv4" ? ["192.0.2.1", "10.96.0.1", "10.180.0.1"] : ["fd00:c1::1", "fd00:96::1", "fd00:180::1"]
    ) as [IpAddress, IpAddress, IpAddress]; // they are
    const udp: TestPacket = {
      from: { address: client, port: 4000 },
      to: { address: service, port: 80 },
      protocol: 17,
      flags: 0,
      isFragment: false,
    };
    const scene: Scene = {
      frontends: [6, 17].map((protocol) => ({
        address: service,
        port: 80,
        protocol,
        endpoints: [{ address: pod, port: 8080 }],
        isMasqueraded: true,
        isPassed: false,
        affinitySeconds: 0,
      })),
      nodeAddresses: [],
      packets: [],
    };

    test("are led as they should be, in the interpreter", () => {
      fc.assert(
        fc.property(sceneOf(family), (drawn) => {
          const numberedScene = numbered(drawn, 1024);
          const { meet } = inMemory(family, numberedScene);
          const oracle = new PacketOracle(family, numberedScene);
          for (const packet of numberedScene.packets) {
            const expected = oracle.expected(packet);
            const made = meet(packetBytes(packet));
            const led = made === undefined ? undefined : ledBy(made, family);
            assert.equal(difference(expected, led), undefined, JSON.stringify(packet));
            if (led !== undefined) oracle.note(packet, led.place);
          }
        }),
        { numRuns: 200 },
      );
    });

    test("of a connection that has an entry go on", () => {
      const { meet, connections } = inMemory(family, scene);
      assert.ok(meet(packetBytes(udp)) !== undefined);
      assert.equal(meet(packetBytes(udp)), undefined);
      const tcp = { ...udp, protocol: 6, flags: 0x02 };
      assert.ok(meet(packetBytes(tcp)) !== undefined);
      assert.equal(meet(packetBytes(tcp)), undefined);
      assert.equal(connections.connections.length, 2);
      assert.deepEqual(
        connections.connections.map(({ protocol, timeoutMs }) => [protocol, timeoutMs]),
        [
          [17, 10_000],
          [6, 10_000],
        ],
      );
    });

    const others: Readonly<Record<string, Uint8Array>> = {
      "to another machine's address of the link": contextFor(family, { packetType: 3 }),
      "of a VLAN": contextFor(family, { hasVlan: 1 }),
      "with a mark": contextFor(family, { mark: 1 }),
      "of the other family": contextFor(family === "IPv4" ? "IPv6" : "IPv4"),
    };
    for (const [what, context] of Object.entries(others)) {
      test(`${what} go on`, () => {
        const { meet } = inMemory(family, scene);
        assert.equal(meet(packetBytes(udp), context), undefined);
        assert.ok(meet(packetBytes(udp)) !== undefined);
      });
    }

    test("that are cut short go on", () => {
      const { meet } = inMemory(family, scene);
      const whole = packetBytes({ ...udp, protocol: 6, flags: 0x02 });
      for (let length = 0; length < whole.length - 4; length++)
        assert.equal(meet(whole.subarray(0, length)), undefined);
      assert.ok(meet(whole) !== undefined);
    });

    test("are led as they should be, by the kernel", { skip: reasonToSkip() }, (t) => {
      const bpf = kernelBpf();
      const inside = networkOfScenes(t, family);
      let first = 1024;
      fc.assert(
        fc.property(sceneOf(family), (drawn) => {
          const numberedScene = numbered(drawn, first);
          const definitions = testPacketMaps(family);
          const maps = openPacketMaps(bpf, definitions);
          fillPacketMaps(maps, numberedScene, family);
          const program = bpf.loadProgram(
            packetProgram(family, definitions, { podRange: podRange(family) }),
            "ingress",
            Object.values(maps),
          );
          inside.run(() => {
            for (const one of numberedScene.packets) assert.equal(program.run(frameBytes(one)) | 0, TCX_NEXT);
          });
          for (const one of [program, ...Object.values(maps)]) one.close();
          first += numberedScene.packets.length;
          const table = inside.entries();
          const oracle = new PacketOracle(family, numberedScene);
          for (const packet of numberedScene.packets) {
            const led = table.get(packet.from.port);
            assert.equal(difference(oracle.expected(packet), led), undefined, JSON.stringify(packet));
            if (led !== undefined) oracle.note(packet, led.place);
          }
        }),
        { numRuns: 25 },
      );
    });
  });
}

/** A namespace with the routes of the scenes, until the end of the test. */
function networkOfScenes(t: TestContext, family: IpFamily) {
  const name = `kpts-packet-${process.pid}`;
  const ip = (...argv: string[]) => execFileSync("ip", argv, { stdio: "pipe" });
  const { node, own, pods } = NETWORK[family];
  ip("netns", "add", name);
  t.after(() => ip("netns", "delete", name));
  const lines = [
    "link add kpts0 type veth peer name kpts1",
    "link set lo up",
    "link set kpts0 up",
    "link set kpts1 up",
    `addr add ${node} dev kpts0${family === "IPv6" ? " nodad" : ""}`,
    `addr add ${own} dev lo`,
    `route add ${pods} dev kpts0`,
  ];
  execFileSync("ip", ["-n", name, "-batch", "-"], { input: lines.join("\n") });
  const exec = (file: string, ...argv: string[]) =>
    execFileSync("ip", ["netns", "exec", name, file, ...argv], { encoding: "utf8", stdio: "pipe" });
  exec("sysctl", "-qw", `net.${family.toLowerCase()}.conf.all.forwarding=1`);
  return {
    run: <T>(work: () => T): T => inNetworkNamespace(namespacePath(name), work),
    /** By the port of the client. */
    entries(): ReadonlyMap<number, Led> {
      const listed = exec("conntrack", "-L", "-f", family.toLowerCase());
      return new Map(
        listed.split("\n").flatMap((line) => {
          const all = [...line.matchAll(/(src|dst|sport|dport)=(\S+)/g)].map(([, , value = ""]) => value);
          const [, , sport, , address, source, port] = all;
          if (sport === undefined || address === undefined || source === undefined) return [];
          const led = { place: { address: address as IpAddress, port: Number(port) }, source: source as IpAddress };
          return [[Number(sport), led] as const];
        }),
      );
    },
  };
}
