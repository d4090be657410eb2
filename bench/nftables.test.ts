import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { nftScript } from "./nft-program.ts";
import type { NftablesFigures, Spread } from "./nftables-figures.ts";
import { judgeNftables, nftablesTable } from "./nftables-targets.ts";

const around = (p50: number): Spread => ({ count: 1, p50, p99: p50 });

function figures(services: number, more: Partial<NftablesFigures> = {}): NftablesFigures {
  return {
    layout: "Compatible",
    services,
    load: LOAD,
    changes: CHANGES,
    upstream: UPSTREAM,
    upstreamLoad: { loadMs: 100 },
    ...more,
  };
}

const LOAD = {
  loadMs: 100,
  healthMaxMs: 10,
  healthRequests: 1,
  longestTurnMs: 5,
  peakMb: 3,
  settledMb: 2,
  modelMb: 1,
  restartMs: 1,
  restartWrites: 0,
};
const FLOOR = { one: around(0.5), checked: around(0.4), trivial: around(0.1), oneCpuMs: 0.5 };
const CHANGES = {
  one: around(1),
  oneCpuMs: 1,
  floor: FLOOR,
  oneOwn: around(0.1),
  serviceAdded: around(1),
  hundred: around(10),
};
const UPSTREAM = {
  one: around(100),
  hundred: undefined,
  serviceAdded: undefined,
  listing: around(50),
  oneCpuMs: 100,
  listingCpuMs: 50,
};

const failed = (results: readonly NftablesFigures[]) =>
  judgeNftables(results)
    .filter(({ passed }) => !passed)
    .map(({ text }) => text);

test("good figures miss no target, and what was cut off counts as slow", () => {
  assert.deepEqual(failed([figures(100), figures(10_000), figures(30_000)]), []);
  const cutOff = { upstream: { ...UPSTREAM, one: undefined }, upstreamLoad: { loadMs: undefined } };
  assert.deepEqual(failed([figures(10_000, cutOff)]), []);
});

test("each target is missed by what exceeds it", () => {
  const missed = (more: Partial<NftablesFigures>) => failed([figures(10_000, more)]).join("\n");
  assert.match(missed({ changes: { ...CHANGES, one: around(11) } }), /one endpoint changed in 11\.00 ms/);
  const nft = (p50: number) => missed({ upstream: { ...UPSTREAM, one: around(p50) } });
  assert.match(nft(99), /^10000 services: nft -f alone takes 99 ×[^\n]*$/);
  assert.match(nft(40), /the listing before it, as upstream runs them, take 90 ×/);
  assert.match(missed({ load: { ...LOAD, loadMs: 101 } }), /initial load in 101 ms, nft -f takes 100 ms/);
  assert.match(missed({ load: { ...LOAD, healthMaxMs: 51 } }), /answered in 51 ms at most/);
  assert.match(missed({ load: { ...LOAD, restartWrites: 1 } }), /writes nothing/);
  const healing = { kinds: [{ kind: "an element deleted", time: around(101), operations: 1 }] };
  assert.match(missed({ healing }), /an element deleted: healed in 101\.0 ms/);
  const manifest = { count: 50, p50: 51, p99: 60 };
  const api = { count: 50, p50: 40, p99: 201 };
  assert.match(
    missed({ connection: { manifest, api: around(1) } }),
    /51 ms \(p50\) and 60 ms \(p99\) after the manifest/,
  );
  assert.match(
    missed({ connection: { manifest: around(1), api } }),
    /40 ms \(p50\) and 201 ms \(p99\) after the API event/,
  );
  const slow = figures(30_000, { changes: { ...CHANGES, one: around(2) } });
  assert.deepEqual(failed([figures(100), slow]), [
    "one change costs 2.0 × as much at 30000 services as at 100, 1.5 × wanted",
  ]);
});

test("the flat layout has targets of its own", () => {
  const burst = {
    events: 1000,
    latency: { count: 1000, p50: 6, p99: 51 },
    syncs: 100,
    cpuShare: 0.2,
    cpuSeconds: 0.2,
    timerCpuSeconds: 0,
  };
  const changes = { ...CHANGES, one: around(0.6), serviceAdded: around(0.5) };
  const load = { ...LOAD, loadMs: 4_001, settledMb: 251 };
  const large = { layout: "Flat", upstream: undefined, upstreamLoad: undefined, burst, changes, load } as const;
  const { upstream: _none, upstreamLoad: _no, ...flat } = { ...figures(30_000), ...large };
  assert.deepEqual(failed([flat]), [
    "30000 services: one endpoint changed, p50: 0.60 ms, 0.5 ms wanted",
    "30000 services: initial load: 4001 ms, 4000 ms wanted",
    "30000 services: resident afterwards: 251 MB, 250 MB wanted",
    "30000 services: latency at the rate, p50: 6.00 ms, 5 ms wanted",
    "30000 services: latency at the rate, p99: 51 ms, 50 ms wanted",
    "30000 services: processor time of a change at the rate: 200 µs, 150 µs wanted",
  ]);
});

test("the table has a column per size, and rows for what was measured", () => {
  const { upstream: _, ...without } = figures(1000);
  const lines = nftablesTable([figures(100), without]).split("\n");
  assert.match(lines[0] ?? "", /^milliseconds +100 services +1000 services$/);
  assert.ok(lines.some((line) => /nft -f takes, of ours +100 × +–$/.test(line)));
  assert.ok(lines.some((line) => /^ {2}nft -f +cut off +–$/.test(line)));
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
