import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { clientHash } from "../kernel/iptables/hash-program.ts";
import { type IpAddress, toPort } from "../net/ip.ts";
import { cellsOf } from "./cells.ts";
import { ALL_HASHES, hashTurns } from "./hash-order.ts";
import { movedInOrder } from "./moved-share.ts";
import { ip } from "./testing/records.ts";

const SEED = 0x6b707473;

interface Placed {
  readonly ip: IpAddress;
  readonly port: NonNullable<ReturnType<typeof toPort>>;
  readonly weight?: number;
}

function placed(address: string, port = 80, weight?: number): Placed {
  const number = toPort(port);
  assert.ok(number);
  return { ip: ip(address), port: number, ...(weight !== undefined && { weight }) };
}

/** Addresses of pods on several nodes, different in each call. @param set numbers the call */
function pods(count: number, set: number, weights: readonly number[] = []): Placed[] {
  return Array.from({ length: count }, (_, index) => {
    const n = set * 7919 + index * 104729;
    return placed(`10.${(n >> 14) & 255}.${(n >> 7) & 127}.${(n & 127) + 1}`, 80, weights[index % weights.length]);
  });
}

function textFor(endpoints: readonly Placed[], client: IpAddress): string {
  for (const { endpoint, seed, below } of hashTurns(endpoints, SEED)) {
    if ((clientHash({ isFlow: false, seed }, client, undefined) ?? 0) < below) return `${endpoint.ip}:${endpoint.port}`;
  }
  return assert.fail("nobody takes the client");
}

/** The share of each endpoint: what its turn takes of what those before it leave. */
function sharesIn(endpoints: readonly Placed[]): Map<string, number> {
  let left = 1;
  return new Map(
    hashTurns(endpoints, SEED).map(({ endpoint, below }) => {
      const share = (left * below) / ALL_HASHES;
      left -= share;
      return [`${endpoint.ip}`, share];
    }),
  );
}

describe("the order in which rules ask endpoints by a hash", () => {
  test("each has exactly its share, with and without weights", () => {
    for (const count of [1, 2, 3, 7, 32, 100, 1_000]) {
      for (const weights of [[], [1, 9], [1, 2, 3, 4], [100, 65_535]]) {
        const endpoints = pods(count, 1, weights);
        const shares = sharesIn(endpoints);
        const cells = cellsOf(endpoints);
        const sum = cells.reduce((total, one) => total + one, 0);
        assert.equal(hashTurns(endpoints, SEED).at(-1)?.below, ALL_HASHES);
        for (const [index, one] of endpoints.entries()) {
          const wanted = (cells[index] ?? 0) / sum;
          assert.ok(Math.abs((shares.get(one.ip) ?? 0) - wanted) < 1e-6 * wanted, `${count} ${weights}`);
        }
      }
    }
  });

  test("is the same in any order of arrival", () => {
    const numbers = { min: 1, max: 4 };
    const endpoint = fc
      .tuple(fc.integer(numbers), fc.integer(numbers), fc.option(fc.integer(numbers), { nil: undefined }))
      .map(([last, port, weight]) => placed(`10.0.0.${last}`, port, weight));
    const lists = fc.uniqueArray(endpoint, { maxLength: 12, selector: (one) => `${one.ip} ${one.port}` });
    const shuffles = lists.chain((list) =>
      fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
    );
    fc.assert(
      fc.property(shuffles, ([list, shuffled]) => {
        assert.deepEqual(hashTurns(shuffled, SEED), hashTurns(list, SEED));
        const seeds = hashTurns(list, SEED).map((turn) => turn.seed);
        assert.equal(new Set(seeds).size, seeds.length);
      }),
      { seed: Number(process.env.KPTS_PROPERTY_SEED ?? 1) },
    );
  });

  test("a client meets the same pod at every port of a Service", () => {
    const http = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map((address) => placed(address, 8080));
    const media = http.map(({ ip: address }, index) => placed(address, 20_000 + 7 * index));
    for (let n = 1; n < 250; n += 1) {
      const client = ip(`192.0.2.${n}`);
      assert.equal(textFor(http, client).split(":")[0], textFor(media, client).split(":")[0]);
    }
  });

  test("the computed share of clients that move is what clients do", () => {
    const changes: [before: Placed[], after: Placed[]][] = [
      [pods(3, 2), pods(4, 2)],
      [pods(10, 3), pods(9, 3)],
      [pods(5, 4), [...pods(5, 4).slice(1), placed("10.99.0.1")]],
      [pods(4, 5, [1, 9]), pods(4, 5, [2, 9])],
      [pods(2, 6), pods(6, 6)],
      [[placed("10.0.0.1", 80), placed("10.0.0.1", 81)], [placed("10.0.0.1", 81)]],
      [pods(1, 7), pods(1, 8)],
      [pods(3, 9), pods(3, 9)],
    ];
    for (const [before, after] of changes) {
      const clients = Array.from({ length: 4_000 }, (_, n) => ip(`172.${16 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`));
      const moved = clients.filter((client) => textFor(before, client) !== textFor(after, client)).length;
      const share = movedInOrder(before, after, SEED);
      const limit = 4 * Math.sqrt((share * (1 - share)) / clients.length);
      assert.ok(Math.abs(moved / clients.length - share) <= limit + 1e-9, `${moved / clients.length} and ${share}`);
    }
  });

  for (const count of [2, 3, 5, 10, 20, 50, 100, 400]) {
    test(`of ${count} endpoints, at most twice the ideal share moves on average when one goes`, () => {
      const sets = count > 50 ? 40 : 400;
      let sum = 0;
      for (let set = 0; set < sets; set += 1) {
        const endpoints = pods(count, set);
        sum += movedInOrder(endpoints, endpoints.toSpliced(set % count, 1), SEED);
      }
      assert.ok(sum / sets <= 2 / count + 0.01, `${sum / sets}`);
    });
  }

  test("IPv6 addresses differ in each of their words", () => {
    const seeds = ["fd00::1", "fd00::1:0:1", "fd00:0:1::1", "fd01::1", "::1"].map(
      (address) => hashTurns([placed(address)], SEED)[0]?.seed,
    );
    assert.equal(new Set(seeds).size, 5);
  });
});
