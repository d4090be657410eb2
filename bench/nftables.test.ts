import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { nftScript } from "./nft-program.ts";
import { judgeNftables, type NftablesFigures, nftablesTable } from "./nftables.ts";
import type { Spread } from "./table.ts";

const around = (p50: number): Spread => ({ count: 1, p50, p99: p50 });

function figures(services: number, more: Partial<NftablesFigures> = {}): NftablesFigures {
  return { layout: "Compatible", services, load: LOAD, changes: CHANGES, upstream: UPSTREAM, ...more };
}

const LOAD = {
  loadMs: 100,
  sentMs: 90,
  nftLoadMs: 100,
  healthMaxMs: 10,
  longestTurnMs: 5,
  peakMb: 3,
  settledMb: 2,
  modelMb: 1,
  restartMs: 1,
  restartWrites: 0,
};
const CHANGES = {
  one: around(1),
  own: around(0.1),
  cpuMs: 1,
  floor: around(0.5),
  floorCpuMs: 0.5,
  added: around(1),
  hundred: around(10),
};
const UPSTREAM = {
  one: around(100),
  hundred: undefined,
  added: undefined,
  listing: around(50),
  oneCpuMs: 100,
  listingCpuMs: 50,
};

const failed = (results: readonly NftablesFigures[]) =>
  judgeNftables(results)
    .filter(({ passed }) => !passed)
    .map(({ text }) => text);

test("good figures miss no target, and neither does what nft was cut off at", () => {
  assert.deepEqual(failed([figures(100), figures(10_000), figures(30_000)]), []);
  const cutOff = { upstream: { ...UPSTREAM, one: undefined }, load: { ...LOAD, nftLoadMs: undefined } };
  assert.deepEqual(failed([figures(10_000, cutOff)]), []);
});

test("each target is missed by what exceeds it", () => {
  const missed = (more: Partial<NftablesFigures>) => failed([figures(10_000, more)]).join("\n");
  assert.match(
    missed({ changes: { ...CHANGES, one: around(11) } }),
    /one endpoint changed, p50 \/ p99: 11\.0, at most 10\.0/,
  );
  const nft = (p50: number) => missed({ upstream: { ...UPSTREAM, one: around(p50) } });
  assert.match(nft(99), /^10000 services: ours, of nft -f: 0\.0101, at most 0\.0100 wanted$/);
  assert.match(nft(49), /ours, of both: 0\.0101, at most/);
  assert.match(missed({ load: { ...LOAD, loadMs: 101 } }), /ours, of nft -f: 1\.01, at most 1\.00/);
  assert.match(missed({ load: { ...LOAD, healthMaxMs: 51 } }), /health request meanwhile: 51\.0, at most/);
  assert.match(missed({ load: { ...LOAD, restartWrites: 1 } }), /transactions of a restart: 1, at most 0/);
  const healing = { "an element deleted": around(101) };
  assert.match(missed({ healing }), /an element deleted, p50 \/ p99: 101, at most 100/);
  const slow = figures(30_000, { changes: { ...CHANGES, one: around(2) } });
  assert.deepEqual(failed([figures(100), slow]), [
    "one change costs 2.0 × as much at 30000 services as at 100, 1.5 × wanted",
  ]);
});

test("the flat layout has targets of its own", () => {
  const burst = { latency: { count: 1000, p50: 6, p99: 51 }, changesInSync: 10, cpuUs: 200, timerUs: 0, cpuShare: 0.2 };
  const changes = { ...CHANGES, one: around(0.6), added: around(0.5) };
  const { nftLoadMs: _no, ...load } = { ...LOAD, loadMs: 4_001, sentMs: 3_000, settledMb: 251 };
  const { upstream: _none, ...flat } = { ...figures(30_000), layout: "Flat" as const, burst, changes, load };
  assert.deepEqual(failed([flat]), [
    "30000 services: one endpoint changed, p50 / p99: 0.60, at most 0.50 wanted",
    "30000 services: changes at the rate, latency p50 / p99: 6.00, at most 5.00 wanted",
    "30000 services: p99: 51.0, at most 50.0 wanted",
    "30000 services: CPU of a change at the rate, µs: 200, at most 150 wanted",
    "30000 services: initial load: 4001, at most 4000 wanted",
    "30000 services: ours, of those: 1.33, at most 1.30 wanted",
    "30000 services: resident afterwards: 251, at most 250 wanted",
  ]);
});

test("the table has a column per size, and rows for what was measured", () => {
  const { upstream: _, ...without } = figures(1000);
  const lines = nftablesTable([figures(100), without]).split("\n");
  assert.match(lines[0] ?? "", /^milliseconds +100 services +1000 services$/);
  assert.ok(lines.some((line) => /ours, of nft -f +0\.0100 +–$/.test(line)));
  assert.ok(!lines.some((line) => line.includes("healing")));
});

test("a change is written for nft as upstream writes it", () => {
  const set = { name: "service-ips", key: ["address", "protocol", "port"], isMap: true } as const;
  const targets = ["10.0.0.1", "10.0.0.2"].map((ip) => ({ ip: ip as IpAddress, port: 80 })); // canonical
  const operations: NftOperation[] = [
    { kind: "flush-chain", chain: "a" },
    { kind: "add-chain", chain: { name: "b" } },
    { kind: "add-rule", chain: "b", rule: { statements: [{ kind: "reject" }], comment: "text" } },
    { kind: "add-rule", chain: "b", rule: { statements: [{ kind: "random-dnat", targets }] } },
    {
      kind: "add-elements",
      set,
      elements: [{ key: ["10.0.0.1" as IpAddress, "tcp", 80], verdict: { kind: "goto", chain: "b" } }], // canonical
    },
  ];
  assert.deepEqual(nftScript("t", operations).split("\n"), [
    "add chain ip t a",
    "flush chain ip t a",
    "add chain ip t b",
    "flush chain ip t b",
    'add rule ip t b reject comment "text"',
    "add rule ip t b dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80 , 1 : 10.0.0.2 . 80 }",
    "add element ip t service-ips { 10.0.0.1 . tcp . 80 : goto b }",
    "",
  ]);
  assert.throws(() => nftScript("t", [{ kind: "delete-table" }]), RangeError);
});
