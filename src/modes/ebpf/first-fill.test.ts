/** Frontends of service ports that are new to the maps: they are written together, but each can fail alone. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port } from "../../../testkit/dataplane/test-cluster.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { BpfError } from "../../kernel/bpf/bpf-error.ts";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import { SocketMaps } from "./socket-maps.ts";

const FACTS = { nodeName: "node-a", zone: undefined };
const ENDPOINT = makeEndpoint("10.180.0.10", 8080);
const OTHER = makeEndpoint("10.180.0.11", 8080);

const addressOf = (index: number): string => `10.96.${index >> 8}.${index & 255}`;
const service = (index: number) => port(`s${index}`, addressOf(index));
const keyOf = (index: number): string => service(index).name.key;
const led = (index: number, endpoint = ENDPOINT): string =>
  `TCP ${addressOf(index)} 80 cluster ${endpoint.ip} ${endpoint.port}`;

function scene(t: { after(end: () => void): void }, refuse: (key: Uint8Array) => boolean = () => false) {
  const memory = memoryBpf();
  const calls: string[] = [];
  let elements = (): number => 0;
  const bpf: Bpf = {
    ...memory,
    createMap: (definition) => {
      const map = memory.createMap(definition);
      const { update, updateAll } = map;
      if (definition.name === "frontends4") elements = () => map.entries().length;
      map.update = (key, value) => {
        if (refuse(key)) throw new BpfError("ENOMEM", "bpf: as the test wants it: ENOMEM");
        if (definition.name === "frontends4") calls.push("update");
        update.call(map, key, value);
      };
      map.updateAll = (keys, values) => {
        const before = calls.length;
        try {
          updateAll.call(map, keys, values);
        } finally {
          // The fake makes one call per element; count the batch only.
          calls.splice(before, Infinity, "updateAll");
        }
      };
      return map;
    },
  };
  const maps = new SocketMaps(
    { bpf, family: "IPv4", onMoved: () => {}, nowMs: () => 0 },
    { services: 8, endpoints: 8 },
  );
  t.after(() => maps.close());
  const set = (index: number, endpoint = ENDPOINT): void => maps.set(keyOf(index), service(index), [endpoint], FACTS);
  const take = (): readonly string[] => calls.splice(0);
  return { maps, set, take, count: () => elements() };
}

test("a thousand and more go to the kernel in a few calls, and the room for them grows", (t) => {
  const { maps, set, take } = scene(t);
  const numbers = Array.from({ length: 3000 }, (_, index) => index);
  for (const index of numbers) set(index);
  maps.settle();
  assert.deepEqual([...maps.state()], numbers.map((index) => led(index)).sort());
  const calls = take();
  assert.ok(calls.filter((call) => call === "updateAll").length <= 8, calls.length.toString());
  // The call that found the map full is repeated, element by element.
  assert.ok(calls.filter((call) => call === "update").length <= 2048, calls.length.toString());
});

test("what is known is written at once, and what has waited does not come back after it", (t) => {
  const { maps, set, take, count } = scene(t);
  set(1);
  assert.deepEqual(take(), []);
  maps.set(keyOf(1), service(1), [ENDPOINT, OTHER], FACTS);
  assert.deepEqual(take(), ["updateAll", "update"]);
  set(2);
  maps.remove(keyOf(2));
  set(3);
  maps.release(keyOf(1), undefined);
  maps.settle();
  assert.deepEqual(maps.state(), [led(3)]);
  assert.equal(count(), 1, "nothing is left of others");
});

test("one that the kernel refuses is left out; the others of its call are served", (t) => {
  const { maps, set } = scene(t, (key) => key[3] === 3);
  for (let index = 0; index < 6; index++) set(index);
  maps.settle();
  assert.deepEqual(
    maps.state(),
    [0, 1, 2, 4, 5].map((index) => led(index)),
  );
  assert.deepEqual([...maps.refused], [[keyOf(3), "bpf: as the test wants it: ENOMEM"]]);
});

test("a service port with more addresses than go together", (t) => {
  const { maps } = scene(t);
  const externalIPs = Array.from({ length: 2500 }, (_, index) => ip(`192.0.${index >> 8}.${index & 255}`));
  maps.set("n/many:p", port("many", "10.96.0.1", { externalIPs }), [ENDPOINT], FACTS);
  maps.settle();
  assert.equal(maps.state().length, 2501);
});

test("what a sync has begun with and not yet written is no damage that another program has done", (t) => {
  const { maps, set } = scene(t);
  set(1);
  maps.settle();
  maps.release(keyOf(1), port("s1", addressOf(1), { port: 81 }));
  assert.equal(maps.findDamage(), 0);
});
