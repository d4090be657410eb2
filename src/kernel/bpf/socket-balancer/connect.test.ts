import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { interpret } from "../../../../testkit/fakes/bpf/interpreter.ts";
import { memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import { MemoryMap } from "../../../../testkit/fakes/bpf/memory-map.ts";
import fc from "../../../../testkit/support/fast-check.ts";
import { PATIENCE } from "../../../../testkit/support/patience.ts";
import { type IpAddress, ipFromBytes } from "../../../net/ip.ts";
import { kernelBpf } from "../kernel-bpf.ts";
import { takeNumber } from "../layout.ts";
import { reasonToSkip, testCgroup } from "../testing/test-cgroup.ts";
import { CONNECT_HOOKS, type ConnectKind, connectProgram, TEST_CONTEXT, TEST_RETURN_VALUE } from "./connect.ts";
import { balancerMaps } from "./maps.ts";
import { startDialler } from "./testing/dialler.ts";
import {
  type Answer,
  answerOf,
  contextOf,
  expectedAnswer,
  type Frontend,
  fillMaps,
  openMaps,
  type Place,
} from "./testing/dialling.ts";

const KINDS: readonly ConnectKind[] = ["IPv4", "IPv6", "mapped"];
const CAPACITY = { frontends: 64, slots: 64, backends: 64 };
const DIALS = 40;
const REFUSED = -111;

const familyFor = (kind: ConnectKind) => (kind === "IPv6" ? "IPv6" : "IPv4");

/** Few addresses and ports, so that hits and near misses are common. */
function placeOf(kind: ConnectKind): fc.Arbitrary<Place> {
  const bytes = kind === "IPv6" ? [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : [10, 96, 255];
  return fc.record({
    address: fc.constantFrom(0, 1, 200).map((last) => ipFromBytes(Uint8Array.of(...bytes, last))),
    port: fc.constantFrom(80, 0x5000, 443, 65535),
  });
}

const protocol = fc.constantFrom(6, 17, 1, 136);

function frontendsOf(kind: ConnectKind): fc.Arbitrary<readonly Frontend[]> {
  const frontend = fc.record({
    place: placeOf(kind),
    protocol: fc.constantFrom(6, 17),
    endpoints: fc.array(placeOf(kind), { maxLength: 4 }),
    isPassed: fc.nat({ max: 9 }).map((drawn) => drawn === 0),
    isReused: fc.nat({ max: 9 }).map((drawn) => drawn === 0),
  });
  return fc.array(
    frontend.map(({ place, ...rest }) => ({ ...place, ...rest })),
    { maxLength: 12 },
  );
}

function dialsOf(kind: ConnectKind) {
  const dial = fc.record({ to: placeOf(kind), protocol, random: fc.nat({ max: 0xffffffff }) });
  return fc.array(dial, { minLength: DIALS, maxLength: DIALS });
}

for (const kind of KINDS) {
  const definitions = balancerMaps(familyFor(kind), CAPACITY);

  test(`connect of ${kind}: the program does what the plan says`, () => {
    const { instructions } = connectProgram(kind, definitions);
    fc.assert(
      fc.property(frontendsOf(kind), dialsOf(kind), (frontends, dials) => {
        const maps = new Map(Object.values(definitions).map((one) => [one.name, new MemoryMap(one)]));
        fillMaps(asOpenMaps(maps, definitions), frontends, familyFor(kind));
        for (const dial of dials) {
          const before = contextOf(kind, dial.to, dial.protocol);
          const after = before.slice();
          const outcome = interpret(instructions, after, maps, { random32: () => dial.random });
          const answer: Answer =
            outcome.result === 0n ? { kind: "refuse" } : answerOf(kind, before, after, allEndpoints(frontends));
          assert.deepEqual(
            plain(answer, dial.to),
            plain(expectedAnswer(frontends, dial.to, dial.protocol, dial.random), dial.to),
          );
          assert.equal(outcome.returnValue, outcome.result === 0n ? REFUSED : undefined);
        }
      }),
      { numRuns: 90 },
    );
  });

  test(`connect of ${kind}: the kernel does what the plan says`, { skip: reasonToSkip() }, () => {
    const bpf = kernelBpf();
    fc.assert(
      fc.property(frontendsOf(kind), dialsOf(kind), (frontends, dials) => {
        const maps = openMaps(bpf, definitions);
        const program = bpf.loadProgram(
          connectProgram(kind, definitions, { form: "test" }),
          "test",
          Object.values(maps),
        );
        try {
          fillMaps(maps, frontends, familyFor(kind));
          for (const dial of dials) {
            const before = contextOf(kind, dial.to, dial.protocol, TEST_CONTEXT.size);
            const after = before.slice();
            if (program.run(after) === 0) {
              assert.equal(takeNumber(after, TEST_RETURN_VALUE) | 0, REFUSED);
              assert.equal(expectedAnswer(frontends, dial.to, dial.protocol, 0).kind, "refuse");
              continue;
            }
            // The kernel draws for itself: any endpoint of the frontend is right.
            const possible = [0, 1, 2, 3].map((part) =>
              plain(expectedAnswer(frontends, dial.to, dial.protocol, part * 2 ** 30), dial.to),
            );
            const third = plain(expectedAnswer(frontends, dial.to, dial.protocol, 0x80000000 - 1), dial.to);
            const answer = plain(answerOf(kind, before, after, allEndpoints(frontends)), dial.to);
            assert.ok([...possible, third].includes(answer), `${answer} is none of ${possible.join()}`);
          }
        } finally {
          for (const one of [program, ...Object.values(maps)]) one.close();
        }
      }),
      { numRuns: 20 },
    );
  });
}

/** An endpoint that is the frontend itself cannot be told from a pass. */
function plain(answer: Answer, dialled: Place): string {
  if (answer.kind !== "to") return answer.kind;
  const { address, port } = answer.place;
  return address === dialled.address && port === dialled.port ? "pass" : `${address} ${port}`;
}

const allEndpoints = (frontends: readonly Frontend[]): readonly Place[] => frontends.flatMap((one) => one.endpoints);

/** The interpreter's maps, to be written through the same interface as the kernel's. */
function asOpenMaps(maps: ReadonlyMap<string, MemoryMap>, definitions: ReturnType<typeof balancerMaps>) {
  const bpf = memoryBpf(new Map(), maps);
  return openMaps(bpf, definitions);
}

describe("connect: a process in a cgroup", { skip: reasonToSkip(), timeout: 60_000 * PATIENCE }, () => {
  const VIP4 = "10.96.0.1" as IpAddress; // canonical literals
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
      const definitions = balancerMaps(familyFor(kind), CAPACITY);
      const maps = openMaps(bpf, definitions);
      t.after(() => Object.values(maps).map((map) => map.close()));
      fillMaps(
        maps,
        [
          { address: vip, port: 80, protocol: 6, endpoints: ports.map((port) => ({ address: local, port })) },
          { address: vip, port: 53, protocol: 17, endpoints: [{ address: local, port: udpPort }] },
          { address: vip, port: 81, protocol: 6, endpoints: [] },
        ],
        familyFor(kind),
      );
      const direct = await dialler.dial("tcp", { address: local, port: ports[0] ?? 0 });
      assert.deepEqual(direct, { reached: ports[0] });
      const unserved = await dialler.dial("tcp", { address: dialled, port: 80 });
      assert.equal(unserved.code, "ENETUNREACH", "the namespace has no route to a frontend");

      const program = bpf.loadProgram(connectProgram(kind, definitions), CONNECT_HOOKS[kind], Object.values(maps));
      t.after(() => program.close());
      const link = bpf.attach(program, CONNECT_HOOKS[kind], cgroup);
      try {
        const reached = new Set<number | undefined>();
        for (let attempt = 0; attempt < 100 && reached.size < 2; attempt++) {
          reached.add((await dialler.dial("tcp", { address: dialled, port: 80 })).reached);
        }
        assert.deepEqual(reached, new Set(ports), "both backends are chosen");
        assert.deepEqual(await dialler.dial("tcp", { address: dialled, port: 81 }), { code: "ECONNREFUSED" });
        assert.deepEqual(await dialler.dial("tcp", { address: dialled, port: 82 }), { code: "ENETUNREACH" });
        assert.deepEqual(await dialler.dial("tcp", { address: local, port: ports[1] ?? 0 }), { reached: ports[1] });
        if (kind !== "mapped") {
          assert.deepEqual(await dialler.dial("udp", { address: dialled, port: 53 }), { reached: udpPort });
        }
      } finally {
        link.close();
      }
      assert.equal((await dialler.dial("tcp", { address: dialled, port: 80 })).code, "ENETUNREACH");
    });
  }
});
