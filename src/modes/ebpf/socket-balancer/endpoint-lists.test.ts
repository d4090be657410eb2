import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { type IpAddress, type IpFamily, ipFromBytes } from "../../../net/ip.ts";
import { BackendArray, type ListedEndpoint } from "./backend-array.ts";
import { type EndpointList, EndpointLists, NoRoom } from "./endpoint-lists.ts";
import { REST_MS } from "./free-list.ts";
import { BACKEND_IDENTITY_WORD, BACKEND_VALUE, HELD } from "./maps.ts";

const PLENTY = 512;

function memoryFor(family: IpFamily, capacity: number) {
  const words = (bytes: number) => new BigUint64Array((bytes * capacity) / 8);
  return { slots: words(8), backends: words(BACKEND_VALUE[family].size) };
}

function endpointOf(family: IpFamily, number: number): ListedEndpoint {
  const bytes = new Uint8Array(family === "IPv4" ? 4 : 16).fill(0xfd);
  bytes[bytes.length - 1] = number;
  return { ip: ipFromBytes(bytes), port: 8000 + number };
}

const text = ({ ip, port }: ListedEndpoint): string => `${ip} ${port}`;
const texts = (endpoints: readonly ListedEndpoint[]): readonly string[] => endpoints.map(text).sort();

/** Steps: which of a few lists changes, its endpoints, and the delay. */
const steps = fc.array(
  fc.record({
    list: fc.nat({ max: 3 }),
    // One that stands several times is chosen as often.
    endpoints: fc.array(fc.nat({ max: 20 }), { maxLength: 9 }),
    serving: fc.uniqueArray(fc.nat({ max: 20 })),
    laterMs: fc.constantFrom(0, 1, REST_MS),
  }),
  { minLength: 1, maxLength: 40 },
);

for (const family of ["IPv4", "IPv6"] as const) {
  test(`lists of ${family} hold what was written, and a reader of an old one finds nothing of another, and flows stay while their endpoint serves`, () => {
    fc.assert(
      fc.property(steps, (history) => {
        let nowMs = 0;
        const memory = memoryFor(family, PLENTY);
        const [perBackend, identityWord] = [BACKEND_VALUE[family].size / 8, BACKEND_IDENTITY_WORD[family].at / 8];
        const lists = new EndpointLists(family, memory, () => nowMs);
        const array = new BackendArray(family, memory.backends);
        const held: (EndpointList | undefined)[] = [];
        const wanted: (readonly ListedEndpoint[])[] = [];
        /** By list: the backends of flows, and the identities that these had. */
        const flows = history.map(() => new Map<string, readonly [backend: number, identity: bigint]>());
        const backendsOf = ({ base, count }: EndpointList) =>
          Array.from({ length: count }, (_, slot) => Number(memory.slots[base + slot] ?? -1n));
        const identityAt = (backend: number) => (memory.backends[backend * perBackend + identityWord] ?? 0n) & ~HELD;
        const check = () => {
          for (const [at, list] of held.entries()) {
            assert.deepEqual(list === undefined ? [] : texts(lists.read(list)), texts(wanted[at] ?? []));
          }
        };
        for (const { list: at, endpoints, serving, laterMs } of history) {
          nowMs += laterMs;
          const old = held[at];
          const before = wanted[at] ?? [];
          const after = endpoints.map((number) => endpointOf(family, number));
          const stays = serving.map((number) => endpointOf(family, number));
          const list = lists.write(old, after, stays);
          // The frontends still refer to the old list.
          const allowed = new Set([...before, ...after].map(text));
          if (old !== undefined) {
            const seen = lists.read(old);
            assert.ok(seen.every((endpoint) => allowed.has(text(endpoint))));
            const mayPass = old.count === 0 || (list?.held ?? 0) > 0;
            assert.ok(seen.length > 0 || mayPass, "there is always an endpoint to answer");
          }
          held[at] = list;
          wanted[at] = after;
          lists.settle();
          if (old !== undefined) assert.ok(lists.read(old).every((endpoint) => allowed.has(text(endpoint))));
          check();
          const led = flows[at] ?? new Map<string, readonly [number, bigint]>();
          const holds = new Set([...after, ...stays].map(text));
          for (const [endpoint, [backend, identity]] of led) {
            assert.equal(identityAt(backend) === identity, holds.has(endpoint), `a flow to ${endpoint}`);
            if (!holds.has(endpoint)) led.delete(endpoint);
          }
          for (const backend of list === undefined ? [] : backendsOf(list)) {
            led.set(text(array.endpointAt(backend)), [backend, identityAt(backend)]);
          }
        }
      }),
      { numRuns: 200 },
    );
  });
}

test("a full array refuses without a trace, and goes on when it has grown", () => {
  const small = memoryFor("IPv4", 4);
  const lists = new EndpointLists("IPv4", small, () => 0);
  const two = lists.write(undefined, [endpointOf("IPv4", 1), endpointOf("IPv4", 2)]);
  const before = [small.slots.slice(), small.backends.slice()];
  const three = [3, 4, 5].map((number) => endpointOf("IPv4", number));
  assert.throws(() => lists.write(undefined, three), NoRoom);
  assert.throws(() => lists.write(two, [...three, endpointOf("IPv4", 1), endpointOf("IPv4", 6)]), NoRoom);
  assert.deepEqual(small.slots, before[0]);
  const identities = (words: BigUint64Array | undefined) =>
    [...(words ?? [])].map((word) => Number(word & 0xffffffffn));
  assert.deepEqual(
    identities(small.backends).filter((_, at) => at % 2 === 1),
    identities(before[1]).filter((_, at) => at % 2 === 1),
    "what was tried belongs to no list",
  );
  const large = memoryFor("IPv4", 16);
  large.slots.set(small.slots);
  large.backends.set(small.backends);
  lists.moveTo(large);
  const list = lists.write(undefined, three);
  assert.deepEqual(list && texts(lists.read(list)), texts(three));
  assert.deepEqual(two && texts(lists.read(two)), texts([endpointOf("IPv4", 1), endpointOf("IPv4", 2)]));
});

test("an address is read back as it was written", () => {
  const lists = new EndpointLists("IPv6", memoryFor("IPv6", 8), () => 0);
  const endpoint = { ip: "fd00:10:180::1:7" as IpAddress, port: 65_535 }; // a literal in canonical form
  const list = lists.write(undefined, [endpoint]);
  assert.deepEqual(list && lists.read(list), [endpoint]);
});

test("of an earlier process, lists go on under their ids; of others nothing is kept, and their backends are free", () => {
  const memory = memoryFor("IPv4", 32);
  const numbers = (first: number, count: number) =>
    Array.from({ length: count }, (_, at) => endpointOf("IPv4", first + at));
  const before = new EndpointLists("IPv4", memory, () => 0);
  const [lost, kept, last] = [numbers(1, 3), numbers(4, 2), numbers(6, 5)].map((all) => before.write(undefined, all));
  assert.ok(lost !== undefined && kept !== undefined && last !== undefined);
  const identities = memory.backends.slice();
  let nowMs = 0;
  const slots = new BigUint64Array(32);
  const after = new EndpointLists("IPv4", { ...memory, slots }, () => nowMs);
  after.adopt(0);
  const list = after.write(undefined, numbers(4, 2), [], kept.id);
  assert.ok(list !== undefined && list.id === kept.id);
  assert.deepEqual(texts(after.read(list)), texts(numbers(4, 2)));
  assert.deepEqual(memory.backends, identities, "not even the lists that wait are touched");
  after.forgetFormer();
  assert.equal(after.settle(), true);
  assert.deepEqual([before.read(lost), before.read(last)], [[], []], "cleared");
  nowMs = REST_MS;
  const next = after.write(undefined, numbers(20, 16));
  assert.ok(next !== undefined && next.id > last.id, "ids are not used again");
  assert.deepEqual(texts(after.read(next)), texts(numbers(20, 16)));
  assert.deepEqual(texts(after.read(list)), texts(numbers(4, 2)));
});

test("ids of lists that have no backends any more are not used again", () => {
  const lists = new EndpointLists("IPv4", memoryFor("IPv4", 32), () => 0);
  lists.adopt(41);
  assert.equal(lists.write(undefined, [endpointOf("IPv4", 1)])?.id, 42);
});

test("a former list that there is no room for keeps its backends until there is", () => {
  const memory = memoryFor("IPv4", 4);
  const [one, two] = [1, 2].map((number) => endpointOf("IPv4", number));
  assert.ok(one !== undefined && two !== undefined);
  const list = new EndpointLists("IPv4", memory, () => 0).write(undefined, [one, two]);
  const identities = memory.backends.slice();
  const after = new EndpointLists("IPv4", { ...memory, slots: new BigUint64Array(1) }, () => 0);
  after.adopt(0);
  assert.throws(() => after.write(undefined, [one, two], [], list?.id), NoRoom);
  after.moveTo({ ...memory, slots: new BigUint64Array(2) });
  assert.equal(after.write(undefined, [one, two], [], list?.id)?.count, 2);
  assert.deepEqual(memory.backends, identities);
});

test("of an earlier process, endpoints that flows stay with are held, and not offered", () => {
  const memory = memoryFor("IPv4", 32);
  const [one, two, three, four] = [1, 2, 3, 4].map((number) => endpointOf("IPv4", number));
  assert.ok(one !== undefined && two !== undefined && three !== undefined && four !== undefined);
  const before = new EndpointLists("IPv4", memory, () => 0);
  const list = before.write(before.write(undefined, [one, two]), [two, three], [one]);
  assert.ok(list !== undefined);
  assert.deepEqual([list.count, list.held], [2, 1]);
  const local = before.write(undefined, [one], [], list.id ^ 1);
  assert.ok(local !== undefined && local.id === (list.id ^ 1), "flows are those of the service port");
  const other = before.write(undefined, [one]);
  assert.ok(other !== undefined && ![list.id, local.id].includes(other.id));
  const left = before.write(before.write(undefined, [four]), [], [four]);
  assert.deepEqual([left?.count, left?.held], [0, 1]);
  assert.ok(left !== undefined);
  before.settle();
  const identities = memory.backends.slice();
  const after = new EndpointLists("IPv4", { ...memory, slots: new BigUint64Array(32) }, () => REST_MS);
  after.adopt(0);
  const again = after.write(undefined, [two, three], [one], list.id);
  assert.ok(again !== undefined);
  assert.deepEqual([texts(after.read(again)), again.held], [texts([two, three]), 1]);
  after.write(undefined, [one], [], local.id);
  after.write(undefined, [one], [], other.id);
  assert.equal(after.write(undefined, [], [four], left.id)?.held, 1);
  after.forgetFormer();
  assert.equal(after.settle(), false, "nothing has gone");
  assert.deepEqual(memory.backends, identities);
  const back = after.write(again, [one, two, three], [one, two, three]);
  assert.deepEqual(back && [texts(after.read(back)), back.held], [texts([one, two, three]), 0]);
  assert.equal(after.settle(), false, "nothing has gone");
  assert.equal(back && after.write(back, []), undefined);
  assert.equal(after.settle(), true);
});
