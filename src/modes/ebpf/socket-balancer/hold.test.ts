/** Which sockets of the host cannot be bound while node ports are held. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { interpret } from "../../../../testkit/fakes/bpf/interpreter.ts";
import { memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import { MemoryMap } from "../../../../testkit/fakes/bpf/memory-map.ts";
import fc from "../../../../testkit/support/fast-check.ts";
import { PATIENCE } from "../../../../testkit/support/patience.ts";
import { kernelBpf } from "../../../kernel/bpf/kernel-bpf.ts";
import { putNumber, takeNumber } from "../../../kernel/bpf/layout.ts";
import { runnable } from "../../../kernel/bpf/testing/run-program.ts";
import { reasonToSkip, testCgroup } from "../../../kernel/bpf/testing/test-cgroup.ts";
import { type IpAddress, ipBytes, ipFromBytes } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { socketPrograms } from "./programs.ts";
import { startDialler } from "./testing/dialler.ts";
import { type Frontend, fillMaps, HOST_NETNS, openMaps, testMaps } from "./testing/dialling.ts";
import {
  familyOfKind,
  SOCK,
  type SocketKind,
  TEST_CONTEXT_BYTES,
  TEST_NETNS_COOKIE,
  TEST_RETURN_VALUE,
  testProgram,
} from "./testing/test-programs.ts";

const KINDS: readonly SocketKind[] = ["IPv4", "IPv6", "mapped"];
const IN_USE = -98;
const OPTIONS = { hostCookie: BigInt(HOST_NETNS) };
const UNSPECIFIED = 0;

/** A bound socket; its address is one of a few, by index. */
interface Bound {
  readonly at: number;
  readonly port: number;
  readonly protocol: number;
  readonly netns: number;
}

interface Scene {
  readonly held: readonly { readonly port: number; readonly protocol: number; readonly isNodePort: boolean }[];
  readonly nodeAddresses: readonly number[];
  readonly bound: readonly Bound[];
}

const addressOf = (kind: SocketKind, at: number): IpAddress => {
  const bytes = familyOfKind(kind) === "IPv6" ? [0xfd, ...new Uint8Array(14)] : [192, 0, 2];
  return ipFromBytes(at === UNSPECIFIED ? new Uint8Array(bytes.length + 1) : Uint8Array.of(...bytes, at));
};

const port = fc.constantFrom(30_080, 0x8075, 80);
const scenes: fc.Arbitrary<Scene> = fc.record({
  held: fc.array(fc.record({ port, protocol: fc.constantFrom(6, 17), isNodePort: fc.boolean() }), { maxLength: 4 }),
  nodeAddresses: fc.uniqueArray(fc.integer({ min: 1, max: 3 }), { maxLength: 2 }),
  bound: fc.array(
    fc.record({
      at: fc.integer({ min: 0, max: 3 }),
      port,
      protocol: fc.constantFrom(6, 17, 17, 6, 132, 136),
      netns: fc.constantFrom(HOST_NETNS, HOST_NETNS, 2),
    }),
    { minLength: 20, maxLength: 20 },
  ),
});

const isRefused = ({ held, nodeAddresses }: Scene, { at, port: bound, protocol, netns }: Bound): boolean =>
  netns === HOST_NETNS &&
  (at === UNSPECIFIED || nodeAddresses.includes(at)) &&
  held.some((one) => one.isNodePort && one.port === bound && one.protocol === protocol);

function contextOf(kind: SocketKind, { at, port: bound, protocol, netns }: Bound): Uint8Array {
  const context = new Uint8Array(TEST_CONTEXT_BYTES);
  const { sourceIp4, sourceIp6, sourcePort } = SOCK.fields;
  const bytes = ipBytes(addressOf(kind, at));
  context.set(bytes, kind === "IPv4" ? sourceIp4.at : kind === "IPv6" ? sourceIp6.at : sourceIp6.at + 12);
  // Every other socket bound to the unspecified address uses the form `::ffff:0.0.0.0`.
  if (kind === "mapped" && (at !== UNSPECIFIED || bound === 80)) context.set([0xff, 0xff], sourceIp6.at + 10);
  putNumber(context, sourcePort, bound);
  putNumber(context, SOCK.fields.protocol, protocol);
  putNumber(context, TEST_NETNS_COOKIE, netns);
  return context;
}

function frontendsOf(kind: SocketKind, { held }: Scene): Frontend[] {
  const endpoints = [{ address: addressOf(kind, 9), port: 8080 }];
  return held.map(({ isNodePort, ...one }) => ({
    ...one,
    address: isNodePort ? undefined : addressOf(kind, 1),
    endpoints,
  }));
}

function play(kind: SocketKind, scene: Scene, run: (context: Uint8Array) => number): void {
  for (const bound of scene.bound) {
    const context = contextOf(kind, bound);
    const expected = isRefused(scene, bound) ? [0, IN_USE] : [1, 0];
    assert.deepEqual([run(context), takeNumber(context, TEST_RETURN_VALUE) | 0], expected, JSON.stringify(bound));
  }
}

for (const kind of KINDS) {
  const family = familyOfKind(kind);
  const definitions = testMaps(family);
  const addresses = ({ nodeAddresses }: Scene) => nodeAddresses.map((at) => addressOf(kind, at));

  test(`bind of ${kind}: the program refuses node ports of the host, and nothing else`, () => {
    const program = testProgram("bind", kind, definitions, OPTIONS);
    fc.assert(
      fc.property(scenes, (scene) => {
        const maps = new Map(Object.values(definitions).map((one) => [one.name, new MemoryMap(one)]));
        const opened = openMaps(memoryBpf(new Map(), maps), definitions);
        fillMaps(opened, frontendsOf(kind, scene), family, addresses(scene));
        play(kind, scene, (context) => Number(interpret(program, context, maps).result));
      }),
      { numRuns: 50 },
    );
  });

  test(`bind of ${kind}: so does the kernel`, { skip: reasonToSkip() }, () => {
    const bpf = kernelBpf();
    fc.assert(
      fc.property(scenes, (scene) => {
        const maps = openMaps(bpf, definitions);
        const program = runnable(testProgram("bind", kind, definitions, OPTIONS), Object.values(maps));
        try {
          fillMaps(maps, frontendsOf(kind, scene), family, addresses(scene));
          play(kind, scene, (context) => program.run(context));
        } finally {
          for (const one of [program, ...Object.values(maps)]) one.close();
        }
      }),
      { numRuns: 20 },
    );
  });
}

test("a process in the cgroup cannot bind to a node port; to others, and in another namespace, it can", {
  skip: reasonToSkip(),
  timeout: 60_000 * PATIENCE,
}, async (t) => {
  const bpf = kernelBpf();
  const cgroup = testCgroup(t);
  const [host, pod] = [await startDialler(t, cgroup), await startDialler(t, cgroup)];
  const hostCookie = await host.netnsCookie();
  const frontend = (protocol: number, nodePort: number): Frontend => ({
    ...{ address: undefined, port: nodePort, protocol },
    endpoints: [],
  });
  const opened: { close(): void }[] = [];
  t.after(() => opened.toReversed().map((one) => one.close()));
  for (const family of ["IPv4", "IPv6"] as const) {
    const definitions = testMaps(family);
    const maps = openMaps(bpf, definitions);
    opened.push(...Object.values(maps));
    const { TCP, UDP } = PROTOCOL_NUMBERS;
    const served = family === "IPv4" ? [frontend(TCP, 30_080), frontend(UDP, 30_053)] : [frontend(TCP, 30_086)];
    fillMaps(maps, served, family);
    for (const [hook, program] of socketPrograms(family, definitions, { hostCookie, holdsNodePorts: true })) {
      if (!hook.startsWith("post_bind")) continue;
      const loaded = bpf.loadProgram(program, hook, Object.values(maps));
      opened.push(loaded, bpf.attach(loaded, hook, cgroup));
    }
  }
  const tries = [
    ["tcp", "0.0.0.0", 30_080, "EADDRINUSE"],
    ["tcp", "::", 30_080, "EADDRINUSE"],
    ["tcp", "::", 30_086, "EADDRINUSE"],
    ["tcp", "0.0.0.0", 30_086, undefined],
    ["tcp", "127.0.0.1", 30_080, undefined],
    ["tcp", "0.0.0.0", 30_053, undefined],
    ["udp", "0.0.0.0", 30_053, "EADDRINUSE"],
    ["udp", "0.0.0.0", 30_080, undefined],
    ["tcp", "0.0.0.0", 0, undefined],
  ] as const;
  for (const [protocol, address, bound, code] of tries) {
    const what = `${protocol} ${address} ${bound}`;
    assert.equal(await host.bind(protocol, address, bound), code, what);
    assert.equal(await pod.bind(protocol, address, bound), undefined, `${what} in a pod`);
  }
});
