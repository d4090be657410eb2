/** Answers of a socket's former endpoint that still lie in its buffer when the socket has moved to another. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { interpret } from "../../../../testkit/fakes/bpf/interpreter.ts";
import { memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import { MemoryMap } from "../../../../testkit/fakes/bpf/memory-map.ts";
import type { Program } from "../../../kernel/bpf/map-definition.ts";
import { ipFromBytes } from "../../../net/ip.ts";
import { contextOf, fillMaps, HOST_NETNS, openMaps, type Place, placeOf, testMaps } from "./testing/dialling.ts";
import { familyOfKind, type SocketKind, testProgram } from "./testing/test-programs.ts";

const KINDS: readonly (readonly [SocketKind, "connect" | "sendmsg"])[] = [
  ["IPv4", "connect"],
  ["IPv4", "sendmsg"],
  ["IPv6", "connect"],
  ["IPv6", "sendmsg"],
  ["mapped", "connect"],
];

const at = (kind: SocketKind, last: number, port: number): Place => {
  const bytes = kind === "IPv6" ? new Uint8Array(15).fill(0xfd) : [10, 96, 0];
  return { address: ipFromBytes(Uint8Array.of(...bytes, last)), port };
};

for (const [kind, call] of KINDS) {
  test(`${kind}, ${call}: answers of the former endpoint have the Service's address, until the next move`, () => {
    const family = familyOfKind(kind);
    const definitions = testMaps(family);
    const maps = new Map(Object.values(definitions).map((one) => [one.name, new MemoryMap(one)]));
    const open = openMaps(memoryBpf(new Map(), maps), definitions);
    const [dns, web] = [at(kind, 1, 53), at(kind, 2, 53)];
    const pods = [101, 102, 103, 104].map((last) => at(kind, last, 5353));
    const [first = dns, second = dns, third = dns, ofWeb = dns] = pods;
    const options = { hostCookie: BigInt(HOST_NETNS) };
    const run = (program: Program, to: Place): Place | undefined => {
      const dial = { to, protocol: 17, socket: 7, netns: 2 };
      const context = contextOf(kind, dial);
      interpret(program, context, maps, { monotonicNs: () => 100_000_000_000n, socketCookie: 7n });
      return placeOf(kind, dial, context, [...pods, dns, web]);
    };
    const [lead, reveal] = ([call, "recvmsg"] as const).map((what) => testProgram(what, kind, definitions, options));
    assert.ok(lead !== undefined && reveal !== undefined);
    const peer = testProgram("peer", kind, definitions, options);
    const offer = (toDns: Place, toWeb: Place): void => {
      const frontends = [
        { ...dns, protocol: 17, endpoints: [toDns] },
        { ...web, protocol: 17, endpoints: [toWeb] },
      ];
      fillMaps(open, frontends, family);
    };
    const shown = () => pods.map((pod) => run(reveal, pod));
    offer(first, ofWeb);
    assert.deepEqual([run(lead, dns), run(lead, web)], [first, ofWeb]);
    assert.deepEqual(shown(), [dns, undefined, undefined, web]);
    offer(second, ofWeb);
    assert.deepEqual([run(lead, dns), run(lead, dns)], [second, second], "once again does not forget it");
    assert.deepEqual(shown(), [dns, dns, undefined, web]);
    assert.equal(run(peer, first), undefined, "only recvmsg looks at it");
    offer(third, ofWeb);
    assert.deepEqual(run(lead, dns), third);
    assert.deepEqual(shown(), [undefined, dns, dns, web]);
    offer(third, second);
    assert.deepEqual(run(lead, web), second);
    assert.deepEqual(shown(), [undefined, web, dns, web], "a current endpoint goes before a former one");
  });
}
