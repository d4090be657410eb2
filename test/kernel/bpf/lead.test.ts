import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelBpf } from "../../../src/kernel/bpf/kernel-bpf.ts";
import { encode, putNumber, takeNumber } from "../../../src/kernel/bpf/layout.ts";
import type { Program } from "../../../src/kernel/bpf/map-definition.ts";
import { runnable } from "../../../src/kernel/bpf/testing/run-program.ts";
import { reasonToSkip, testCgroup } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import {
  BACKEND_VALUE,
  type BalancerMaps,
  CONNECTED_KEY,
  CONNECTED_VALUE,
  VALIDITY,
} from "../../../src/modes/ebpf/socket-balancer/maps.ts";
import { socketPrograms } from "../../../src/modes/ebpf/socket-balancer/programs.ts";
import { startDialler } from "../../../src/modes/ebpf/socket-balancer/testing/dialler.ts";
import {
  contextOf,
  type Dial,
  DialOracle,
  type Frontend,
  fillMaps,
  HOST_NETNS,
  leadNamespaces,
  type OpenMaps,
  openMaps,
  type Place,
  POD_NETNS,
  placeOf,
  testMaps,
} from "../../../src/modes/ebpf/socket-balancer/testing/dialling.ts";
import {
  familyOfKind,
  type SocketKind,
  TEST_RETURN_VALUE,
  testProgram,
} from "../../../src/modes/ebpf/socket-balancer/testing/test-programs.ts";
import { type IpAddress, ipFromBytes, unspecifiedAddress } from "../../../src/net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../src/net/protocol.ts";
import { interpret } from "../../../testkit/fakes/bpf/interpreter.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { MemoryMap } from "../../../testkit/fakes/bpf/memory-map.ts";
import fc from "../../../testkit/support/fast-check.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";

const KINDS: readonly SocketKind[] = ["IPv4", "IPv6", "mapped"];
const CALLS = ["connect", "sendmsg"] as const;
const DIALS = 40;
const REFUSED = -111;
const HOST_COOKIE = BigInt(HOST_NETNS);
/** Further options of the programs. */
const OPTIONS = { hostCookie: HOST_COOKIE };

/** Few addresses and ports, so that hits and near misses are common. */
function addressOf(kind: SocketKind): fc.Arbitrary<IpAddress> {
  const bytes = kind === "IPv6" ? [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : [10, 96, 255];
  return fc.constantFrom(0, 1, 200).map((last) => ipFromBytes(Uint8Array.of(...bytes, last)));
}

const port = fc.constantFrom(80, 0x5000, 443, 65535);
const placeFor = (kind: SocketKind): fc.Arbitrary<Place> => fc.record({ address: addressOf(kind), port });

interface Scene {
  readonly frontends: readonly Frontend[];
  readonly nodeAddresses: readonly IpAddress[];
  readonly dials: readonly (Dial & { readonly random: number })[];
  readonly leadsLocalhost: boolean;
}

const seldom = fc.nat({ max: 9 }).map((drawn) => drawn === 0);

function sceneFor(kind: SocketKind): fc.Arbitrary<Scene> {
  return fc.record({
    frontends: fc.array(
      fc.record({
        address: fc.option(addressOf(kind), { nil: undefined, freq: 3 }),
        port,
        protocol: fc.constantFrom(6, 17),
        endpoints: fc.uniqueArray(placeFor(kind), {
          maxLength: 4,
          selector: ({ address, port: at }) => `${address} ${at}`,
        }),
        isPassed: seldom,
        isReused: seldom,
        isHostOnly: seldom,
        affinitySeconds: fc.constantFrom(0, 0, 3600),
      }),
      { maxLength: 12 },
    ),
    nodeAddresses: fc.uniqueArray(addressOf(kind), { maxLength: 2 }),
    leadsLocalhost: fc.boolean(),
    dials: fc.array(dialArbitrary(kind), { minLength: DIALS, maxLength: DIALS }),
  });
}

/** A socket has one protocol: its flows are identified by destination only. */
function dialArbitrary(kind: SocketKind): fc.Arbitrary<Scene["dials"][number]> {
  return fc
    .record({
      to: fc.record({
        address: fc.oneof(
          { weight: 9, arbitrary: addressOf(kind) },
          fc.constant(unspecifiedAddress(familyOfKind(kind))),
          { weight: 3, arbitrary: fc.constant(localhostOf(kind)) },
        ),
        port,
      }),
      protocol: fc.constantFrom(6, 17, 17, 1, 136),
      socket: fc.integer({ min: 7, max: 9 }),
      netns: fc.integer({ min: 1, max: 3 }),
      isBound: seldom,
      random: fc.nat({ max: 0xffffffff }),
    })
    .map((dial) => ({ ...dial, socket: 1_000 * dial.protocol + dial.socket }));
}

/** Places of frontends and endpoints, if a test names them. */
const placesOf =
  (kind: SocketKind) =>
  (last: number, port: number): Place => {
    const bytes = kind === "IPv6" ? new Uint8Array(15).fill(0xfd) : [10, 96, 0];
    return { address: ipFromBytes(Uint8Array.of(...bytes, last)), port };
  };

/** Empty maps. */
const elementsFor = (definitions: BalancerMaps): Map<string, MemoryMap> =>
  new Map(Object.values(definitions).map((one) => [one.name, new MemoryMap(one)]));

const localhostOf = (kind: SocketKind): IpAddress => (kind === "IPv6" ? "::1" : "127.0.0.1") as IpAddress;

/** Plays a scene and compares each dial with the plan. */
function play(
  call: (typeof CALLS)[number],
  kind: SocketKind,
  { frontends, nodeAddresses, dials, leadsLocalhost }: Scene,
  run: (context: Uint8Array, random: number) => number,
  isDrawn: boolean,
  connected: Pick<OpenMaps["connected"], "entries">,
): void {
  const oracle = new DialOracle(frontends, nodeAddresses, leadsLocalhost);
  const recorded = new Map<number, string>();
  const noteConnected = ({ protocol, socket, netns }: Dial, place: Place | undefined): void => {
    if (call !== "connect" || protocol !== PROTOCOL_NUMBERS.UDP) return;
    if (place === undefined) recorded.delete(socket);
    else recorded.set(socket, `${netns} ${place.address} ${place.port}`);
  };
  for (const { random, ...dial } of dials) {
    const context = contextOf(kind, dial);
    const expected = oracle.expected(call, dial);
    if (run(context, random) === 0) {
      assert.equal(takeNumber(context, TEST_RETURN_VALUE) | 0, REFUSED);
      assert.equal(expected.kind, "refuse");
      continue;
    }
    assert.notEqual(expected.kind, "refuse");
    const all = frontends.flatMap(({ endpoints }) => endpoints);
    const met = placeOf(kind, dial, context, all);
    if (expected.kind !== "to") {
      assert.equal(met, undefined);
      noteConnected(dial, undefined);
      continue;
    }
    const { places, taken } = expected;
    const drawn = isDrawn ? places[Math.floor((random / 2 ** 32) * places.length)] : undefined;
    if (met === undefined && taken.length > 0 && (drawn === undefined || taken.includes(drawn))) {
      // An endpoint equal to the frontend cannot be told from a pass.
      if (
        drawn === undefined &&
        places.some(({ address, port: at }) => address === dial.to.address && at === dial.to.port)
      )
        return;
      noteConnected(dial, undefined);
      continue;
    }
    const place = met ?? places.find(({ address, port: at }) => address === dial.to.address && at === dial.to.port);
    assert.ok(place !== undefined, "it passed, and should have been led");
    const wanted = drawn === undefined ? places : [drawn];
    const texts = wanted.filter((one) => !taken.includes(one)).map((one) => `${one.address} ${one.port}`);
    assert.ok(texts.includes(`${place.address} ${place.port}`), `${place.address} ${place.port} is none of ${texts}`);
    oracle.note(call, dial, place);
    noteConnected(dial, place);
  }
  const records = connected.entries().map(([key, value]): [number, string] => {
    const { netns, address, port: at } = CONNECTED_VALUE[familyOfKind(kind)].fields;
    const ip = ipFromBytes(value.slice(address.at, address.at + address.bytes));
    return [takeNumber(key, CONNECTED_KEY.fields.cookie), `${takeNumber(value, netns)} ${ip} ${takeNumber(value, at)}`];
  });
  assert.deepEqual(new Map(records), recorded, "connected UDP sockets that were led");
}

for (const kind of KINDS) {
  const definitions = testMaps(familyOfKind(kind));

  for (const call of kind === "mapped" ? CALLS.slice(0, 1) : CALLS) {
    test(`${call} of ${kind}: the program does what the plan says`, () => {
      const of = (leadsLocalhost: boolean) => testProgram(call, kind, definitions, { ...OPTIONS, leadsLocalhost });
      const [leading, passing] = [of(true), of(false)];
      fc.assert(
        fc.property(sceneFor(kind), (scene) => {
          const maps = elementsFor(definitions);
          const opened = openMaps(memoryBpf(new Map(), maps), definitions);
          fillMaps(opened, scene.frontends, familyOfKind(kind), scene.nodeAddresses);
          const run = (context: Uint8Array, random: number) =>
            Number(
              interpret(scene.leadsLocalhost ? leading : passing, context, maps, { random32: () => random }).result,
            );
          play(call, kind, scene, run, true, opened.connected);
        }),
        { numRuns: 50 },
      );
    });

    test(`${call} of ${kind}: the kernel does what the plan says`, { skip: reasonToSkip() }, () => {
      const bpf = kernelBpf();
      fc.assert(
        fc.property(sceneFor(kind), (scene) => {
          const maps = openMaps(bpf, definitions);
          const options = { ...OPTIONS, leadsLocalhost: scene.leadsLocalhost };
          const program = runnable(testProgram(call, kind, definitions, options), Object.values(maps));
          try {
            fillMaps(maps, scene.frontends, familyOfKind(kind), scene.nodeAddresses);
            // The kernel uses its own random numbers.
            play(call, kind, scene, (context) => program.run(context), false, maps.connected);
          } finally {
            for (const one of [program, ...Object.values(maps)]) one.close();
          }
        }),
        { numRuns: 50 },
      );
    });
  }

  test(`${kind}: a choice holds for its time after the last use, and no longer`, () => {
    const program = testProgram("connect", kind, definitions, OPTIONS);
    const vip = placesOf(kind)(1, 80);
    const endpoints = [2, 3].map((last) => placesOf(kind)(last, 8080));
    const maps = elementsFor(definitions);
    const frontend = { ...vip, protocol: 6, endpoints, affinitySeconds: 10 };
    fillMaps(openMaps(memoryBpf(new Map(), maps), definitions), [frontend], familyOfKind(kind));
    const dial = { to: vip, protocol: 6, socket: 7, netns: 2 };
    const at = (seconds: number, random: number): Place | undefined => {
      const context = contextOf(kind, dial);
      interpret(program, context, maps, {
        random32: () => random,
        monotonicNs: () => BigInt(seconds) * 1_000_000_000n,
      });
      return placeOf(kind, dial, context, endpoints);
    };
    assert.deepEqual(at(100, 0), endpoints[0]);
    assert.deepEqual(at(110, 0xffffffff), endpoints[0]);
    assert.deepEqual(at(120, 0xffffffff), endpoints[0], "each use renews it");
    assert.deepEqual(at(131, 0xffffffff), endpoints[1]);
    assert.deepEqual(at(130, 0), endpoints[1], "another processor has used it after this one looked at the clock");
  });

  const sending = kind === "mapped" ? "connect" : "sendmsg";
  test(`${kind}: a socket asks four services at a time (${sending}), and knows the answers of each`, () => {
    const family = familyOfKind(kind);
    const maps = elementsFor(definitions);
    const at = placesOf(kind);
    const asked = [1, 2, 3, 4, 5].map((number) => at(number, 53));
    const endpoints = [1, 2, 3, 4, 5].map((number) => at(100 + number, 5353));
    const frontends = asked.map((place, index) => ({ ...place, protocol: 17, endpoints: [endpoints[index] ?? place] }));
    fillMaps(openMaps(memoryBpf(new Map(), maps), definitions), frontends, family);
    const run = (program: Program, to: Place | undefined, seconds: number) => {
      assert.ok(to !== undefined);
      const dial = { to, protocol: 17, socket: 7, netns: 2 };
      const context = contextOf(kind, dial);
      const monotonicNs = () => BigInt(seconds) * 1_000_000_000n;
      interpret(program, context, maps, { monotonicNs, socketCookie: 7n });
      return placeOf(kind, dial, context, [...endpoints, ...asked]);
    };
    const lead = testProgram(sending, kind, definitions, OPTIONS);
    const reveal = testProgram("recvmsg", kind, definitions, OPTIONS);
    const led = (seconds: number) => asked.map((to) => run(lead, to, seconds));
    const fourth = endpoints.slice(0, 4);
    assert.deepEqual(led(100), [...fourth, undefined]);
    assert.deepEqual(
      endpoints.map((place) => run(reveal, place, 100)),
      [...asked.slice(0, 4), undefined],
    );
    assert.deepEqual(led(219), [...fourth, undefined], "each use renews it");
    assert.deepEqual(run(lead, asked[4], 340), endpoints[4], "nothing was asked for two minutes");
    assert.deepEqual(run(reveal, endpoints[4], 340), asked[4]);
  });

  test(`${kind}: of two services with one endpoint a socket is led to the first it asks (${sending}); the rules take the other`, () => {
    const maps = elementsFor(definitions);
    const at = placesOf(kind);
    const [one, other, endpoint] = [at(1, 53), at(2, 53), at(3, 5353)];
    const frontends = [one, other].map((place) => ({ ...place, protocol: 17, endpoints: [endpoint] }));
    fillMaps(openMaps(memoryBpf(new Map(), maps), definitions), frontends, familyOfKind(kind));
    const run = (program: Program, to: Place, socket: number, seconds: number): Place | undefined => {
      const dial = { to, protocol: 17, socket, netns: 2 };
      const context = contextOf(kind, dial);
      interpret(program, context, maps, { monotonicNs: () => BigInt(seconds) * 1_000_000_000n });
      return placeOf(kind, dial, context, [endpoint, one, other]);
    };
    const lead = testProgram(sending, kind, definitions, OPTIONS);
    const reveal = testProgram("recvmsg", kind, definitions, OPTIONS);
    assert.deepEqual(run(lead, one, 7, 100), endpoint);
    assert.equal(run(lead, other, 7, 150), undefined);
    assert.deepEqual(run(reveal, endpoint, 7, 150), one);
    assert.deepEqual(run(lead, one, 7, 200), endpoint);
    assert.deepEqual(run(lead, other, 8, 200), endpoint, "another socket");
    assert.deepEqual(run(lead, other, 7, 321), endpoint, "no answer of the first can come any more");
    assert.deepEqual(run(reveal, endpoint, 7, 321), other);
  });

  if (kind !== "mapped") {
    test(`${kind}: datagrams stay with a backend that serves and is not offered, or is of the sibling list; others do not`, () => {
      const family = familyOfKind(kind);
      const maps = elementsFor(definitions);
      const opened = openMaps(memoryBpf(new Map(), maps), definitions);
      const at = placesOf(kind);
      const [vip, endpoint] = [at(1, 53), at(2, 5353)];
      fillMaps(opened, [{ ...vip, protocol: 17, endpoints: [endpoint] }], family);
      const program = testProgram("sendmsg", kind, definitions, OPTIONS);
      const led = (socket: number): Place | undefined => {
        const dial = { to: vip, protocol: 17, socket, netns: 2 };
        const context = contextOf(kind, dial);
        interpret(program, context, maps);
        return placeOf(kind, dial, context, [endpoint]);
      };
      assert.deepEqual(led(7), endpoint);
      const become = (id: number): void => {
        const [[index, before]] = opened.backends.entries().filter(([, value]) => value.some((byte) => byte !== 0)) as [
          [Uint8Array, Uint8Array], // the only one written
        ];
        const value = before.slice();
        putNumber(value, BACKEND_VALUE[family].fields.id, id);
        opened.backends.update(index, value);
      };
      become(2 + 2 ** 31);
      assert.deepEqual([led(7), led(8)], [endpoint, undefined], "held");
      become(3);
      assert.deepEqual([led(7), led(8)], [endpoint, undefined], "of the other list of the service port");
      become(4);
      assert.equal(led(7), undefined, "of another service port");
    });
  }

  test(`${kind}: what a socket was led to appears under the address that it asked`, () => {
    const family = familyOfKind(kind);
    const maps = elementsFor(definitions);
    const [to, place] = [placesOf(kind)(1, 80), placesOf(kind)(2, 8080)];
    const frontends = [6, 17].map((protocol) => ({ ...to, protocol, endpoints: [place] }));
    fillMaps(openMaps(memoryBpf(new Map(), maps), definitions), frontends, family);
    const run = (program: Program, dial: Dial): Place | undefined => {
      const context = contextOf(kind, dial);
      assert.equal(interpret(program, context, maps).result, 1n);
      return placeOf(kind, dial, context, [place, to]);
    };
    const dial = (protocol: number, socket: number) => ({ to, protocol, socket, netns: 2 });
    const back = (protocol: number, socket: number) => ({ ...dial(protocol, socket), to: place });
    assert.deepEqual(run(testProgram("connect", kind, definitions, OPTIONS), dial(6, 7)), place);
    assert.deepEqual(run(testProgram("connect", kind, definitions, OPTIONS), dial(17, 8)), place);
    const peername = testProgram("peer", kind, definitions, OPTIONS);
    const message = testProgram("recvmsg", kind, definitions, OPTIONS);
    assert.deepEqual(run(peername, back(6, 7)), to);
    assert.deepEqual(run(peername, back(17, 8)), to);
    assert.equal(run(peername, back(6, 8)), undefined, "another socket knows nothing of it");
    assert.deepEqual(run(message, back(17, 8)), to);
    assert.equal(run(message, back(17, 7)), undefined);
    assert.equal(run(message, back(1, 8)), undefined);
    // As many sockets as fit, with any cookies: none evicts another.
    const connect = testProgram("connect", kind, definitions, OPTIONS);
    const room = definitions.tcpPeers.maxEntries;
    for (let socket = 1; socket < room; socket += 1) run(connect, dial(6, 7 + socket * room));
    assert.deepEqual(run(peername, back(6, 7)), to);
    assert.deepEqual(run(peername, back(6, 7 + room)), to);
  });
}

for (const kind of KINDS) {
  test(`${kind}: a socket that was led, and then connects to that endpoint by itself, has the endpoint as its peer`, () => {
    const definitions = testMaps(familyOfKind(kind));
    const maps = elementsFor(definitions);
    const at = placesOf(kind);
    const [vip, endpoint] = [at(1, 80), at(2, 8080)];
    const frontends = [6, 17].map((protocol) => ({ ...vip, protocol, endpoints: [endpoint] }));
    fillMaps(openMaps(memoryBpf(new Map(), maps), definitions), frontends, familyOfKind(kind));
    for (const protocol of [6, 17]) {
      const run = (call: "connect" | "peer", to: Place): Place | undefined => {
        const dial = { to, protocol, socket: protocol, netns: 2 };
        const context = contextOf(kind, dial);
        interpret(testProgram(call, kind, definitions, OPTIONS), context, maps);
        return placeOf(kind, dial, context, [vip, endpoint]);
      };
      assert.deepEqual([run("connect", vip), run("peer", endpoint)], [endpoint, vip]);
      assert.deepEqual([run("connect", endpoint), run("peer", endpoint)], [undefined, undefined], `${protocol}`);
      assert.deepEqual([run("connect", vip), run("peer", endpoint)], [endpoint, vip], "and as it is led again");
    }
  });
}

for (const kind of KINDS) {
  test(`${kind}: of connected UDP that could not be told when its endpoint goes nothing is noted`, () => {
    const definitions = testMaps(familyOfKind(kind));
    const maps = elementsFor(definitions);
    const opened = openMaps(memoryBpf(new Map(), maps), definitions);
    const at = placesOf(kind);
    const [vip, endpoint] = [at(1, 53), at(2, 5353)];
    fillMaps(opened, [{ ...vip, protocol: 17, endpoints: [endpoint] }], familyOfKind(kind));
    const connect = (netns: number, leadsConnectedUdp: boolean): Place | undefined => {
      const dial = { to: vip, protocol: 17, socket: netns, netns };
      const context = contextOf(kind, dial);
      interpret(testProgram("connect", kind, definitions, { ...OPTIONS, leadsConnectedUdp }), context, maps);
      return placeOf(kind, dial, context, [endpoint]);
    };
    const noted = () => [opened.flows, opened.connected, opened.otherNamespaces].map((map) => map.entries().length);
    assert.deepEqual([connect(2, false), connect(3, false)], [undefined, undefined]);
    assert.deepEqual(noted(), [0, 0, 0]);
    assert.deepEqual([connect(HOST_NETNS, true), connect(POD_NETNS, true)], [endpoint, endpoint]);
    assert.deepEqual(noted(), [2, 2, 0]);
    assert.deepEqual([connect(3, true), connect(3, true), connect(4, true)], [undefined, undefined, undefined]);
    assert.deepEqual(noted(), [2, 2, 2], "neither the host nor a pod: it is reported, once");
  });
}

test("a kernel without bpf_set_retval loads the programs that do not call it, and only these", {
  skip: reasonToSkip(),
}, () => {
  const bpf = kernelBpf();
  for (const family of ["IPv4", "IPv6"] as const) {
    const definitions = testMaps(family);
    const maps = openMaps(bpf, definitions);
    const load = (canSetReturnValue: boolean): number =>
      socketPrograms(family, definitions, { ...OPTIONS, holdsNodePorts: true, canSetReturnValue }).filter(
        ([hook, { code, ...program }]) => {
          // No kernel has a helper with this number.
          const older = { ...program, code: replaceHelper(code, 187, 0x7ff0) };
          bpf.loadProgram(older, hook, Object.values(maps)).close();
          return older.code.some((byte, at) => byte !== code[at]);
        },
      ).length;
    assert.equal(load(false), family === "IPv4" ? 5 : 3, "all others reveal or forget");
    assert.throws(() => load(true), /invalid func/);
    for (const map of Object.values(maps)) map.close();
  }
});

function replaceHelper(code: Uint8Array, helper: number, other: number): Uint8Array {
  const changed = Buffer.from(code);
  for (let at = 0; at < code.length; at += 8) {
    if (changed[at] === 0x85 && changed.readInt32LE(at + 4) === helper) changed.writeInt32LE(other, at + 4);
  }
  return Uint8Array.from(changed);
}

describe("connect: a process in a cgroup", { skip: reasonToSkip(), timeout: 600_000 * PATIENCE }, () => {
  const VIP4 = "10.96.0.1" as IpAddress; // literals in canonical form
  const VIP6 = "fd00:10:96::1" as IpAddress;

  for (const kind of KINDS) {
    test(`of ${kind} reaches the backends of a frontend, and only them`, async (t) => {
      const bpf = kernelBpf();
      const cgroup = testCgroup(t);
      const dialler = await startDialler(t, cgroup);
      const local = (kind === "IPv6" ? "::1" : "127.0.0.1") as IpAddress;
      const ports = [await dialler.listen("tcp", local), await dialler.listen("tcp", local)];
      const udpPort = await dialler.listen("udp", local);
      const vip = kind === "IPv6" ? VIP6 : VIP4;
      const dialled = kind === "mapped" ? `::ffff:${VIP4}` : vip;
      const definitions = testMaps(familyOfKind(kind));
      const maps: OpenMaps = openMaps(bpf, definitions);
      t.after(() => Object.values(maps).map((map) => map.close()));
      fillMaps(
        maps,
        [
          { address: vip, port: 80, protocol: 6, endpoints: ports.map((port) => ({ address: local, port })) },
          { address: vip, port: 53, protocol: 17, endpoints: [{ address: local, port: udpPort }] },
          { address: vip, port: 81, protocol: 6, endpoints: [] },
        ],
        familyOfKind(kind),
      );
      leadNamespaces(maps, await dialler.netnsCookie());
      const direct = await dialler.dial("tcp", { address: local, port: ports[0] ?? 0 });
      assert.deepEqual(direct, { reached: ports[0], peer: `${local} ${ports[0]}` });
      const unserved = await dialler.dial("tcp", { address: dialled, port: 80 });
      assert.equal(unserved.code, "ENETUNREACH", "the namespace has no route to a frontend");

      const programs = socketPrograms(familyOfKind(kind), definitions, OPTIONS).map(([hook, program]) => {
        const loaded = bpf.loadProgram(program, hook, Object.values(maps));
        t.after(() => loaded.close());
        return bpf.attach(loaded, hook, cgroup);
      });
      try {
        const reached = new Set<number | undefined>();
        for (let attempt = 0; attempt < 100 && reached.size < 2; attempt++) {
          reached.add((await dialler.dial("tcp", { address: dialled, port: 80 })).reached);
        }
        assert.deepEqual(reached, new Set(ports), "both backends are chosen");
        assert.deepEqual(await dialler.dial("tcp", { address: dialled, port: 81 }), { code: "ECONNREFUSED" });
        assert.deepEqual(await dialler.dial("tcp", { address: dialled, port: 82 }), { code: "ENETUNREACH" });
        const { peer } = await dialler.dial("tcp", { address: dialled, port: 80 });
        assert.equal(peer, `${dialled} 80`, "the peer has the address that was dialled");
        const validity = maps.validUntil.lookup(new Uint8Array(4)) ?? assert.fail("an array has its elements");
        maps.validUntil.update(new Uint8Array(4), encode(VALIDITY, { until: process.hrtime.bigint() }));
        assert.deepEqual(await dialler.dial("tcp", { address: dialled, port: 80 }), { code: "ENETUNREACH" });
        assert.deepEqual(await dialler.dial("tcp", { address: dialled, port: 81 }), { code: "ENETUNREACH" });
        maps.validUntil.update(new Uint8Array(4), validity);
        const other = await dialler.dial("tcp", { address: local, port: ports[1] ?? 0 });
        assert.deepEqual(other, { reached: ports[1], peer: `${local} ${ports[1]}` });
        const datagram = await dialler.dial("datagram", { address: dialled, port: 53 });
        assert.deepEqual(datagram, { reached: udpPort, peer: `${dialled} 53` });
        if (kind !== "mapped") {
          assert.deepEqual(await dialler.dial("udp", { address: dialled, port: 53 }), { reached: udpPort });
        }
      } finally {
        for (const link of programs) link.close();
      }
      assert.equal((await dialler.dial("tcp", { address: dialled, port: 80 })).code, "ENETUNREACH");

      // As on kernels before 5.18: Services without endpoints are left to the rules.
      for (const [hook, program] of socketPrograms(familyOfKind(kind), definitions, {
        ...OPTIONS,
        canSetReturnValue: false,
      })) {
        const loaded = bpf.loadProgram(program, hook, Object.values(maps));
        const link = bpf.attach(loaded, hook, cgroup);
        t.after(() => [link, loaded].map((one) => one.close()));
      }
      assert.equal((await dialler.dial("tcp", { address: dialled, port: 81 })).code, "ENETUNREACH");
      assert.ok(ports.includes((await dialler.dial("tcp", { address: dialled, port: 80 })).reached ?? 0));
    });
  }
});
