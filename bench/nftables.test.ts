import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { nftScript } from "./nft-program.ts";
import { nftablesTable } from "./nftables.ts";
import type { NftablesFigures, Spread } from "./nftables-figures.ts";
import { judgeNftables } from "./nftables-targets.ts";

const around = (p50: number): Spread => ({ count: 1, p50, p99: p50 });

function figures(services: number, changes: Partial<NftablesFigures> = {}): NftablesFigures {
  return {
    services,
    initialLoadMs: 100,
    initialDelayMs: 10,
    peakMb: 3,
    settledMb: 2,
    modelMb: 1,
    oneChange: around(1),
    oneChangeOwn: around(0.1),
    serviceAdded: around(1),
    hundredChanges: around(10),
    burst: { events: 1, latency: around(1), syncs: 1, cpuShare: 0.5 },
    restartMs: 1,
    restartWrites: 0,
    nftOneChange: around(100),
    nftHundredChanges: undefined,
    nftServiceAdded: undefined,
    nftListing: around(50),
    nftInitialLoadMs: 100,
    ...changes,
  };
}

const failed = (results: readonly NftablesFigures[]) =>
  judgeNftables(results)
    .filter(({ passed }) => !passed)
    .map(({ text }) => text);

test("good figures miss no target, and what was cut off counts as slow", () => {
  assert.deepEqual(failed([figures(100), figures(10_000), figures(30_000)]), []);
  assert.deepEqual(failed([figures(10_000, { nftOneChange: undefined, nftInitialLoadMs: undefined })]), []);
});

test("each target is missed by what exceeds it", () => {
  const missed = (changes: Partial<NftablesFigures>) => failed([figures(10_000, changes)]).join("\n");
  assert.match(missed({ oneChange: around(11) }), /one endpoint changed in 11\.00 ms/);
  assert.match(missed({ nftOneChange: around(99) }), /^10000 services: nft -f alone takes 99 ×[^\n]*$/);
  assert.match(missed({ nftOneChange: around(40) }), /the listing before it, as upstream runs them, take 90 ×/);
  assert.match(missed({ initialLoadMs: 101 }), /initial load in 101 ms, nft -f takes 100 ms/);
  assert.match(missed({ initialDelayMs: 51 }), /every 51 ms/);
  assert.match(missed({ restartWrites: 1 }), /writes nothing/);
  assert.deepEqual(failed([figures(100), figures(30_000, { oneChange: around(2) })]), [
    "one change costs 2.0 × as much at 30000 services as at 100, 1.5 × wanted",
  ]);
});

test("the table has a column per size", () => {
  const lines = nftablesTable([figures(100), figures(1000)]).split("\n");
  assert.match(lines[0] ?? "", /^milliseconds +100 services +1000 services$/);
  assert.ok(lines.some((line) => /the same by nft -f +cut off +cut off$/.test(line)));
});

test("a change is written for nft as it is sent to the kernel", () => {
  const set = { name: "service-ips", key: ["address", "protocol", "port"], isMap: true } as const;
  const operations: NftOperation[] = [
    { kind: "flush-chain", chain: "a" },
    { kind: "add-chain", chain: { name: "b" } },
    { kind: "add-rule", chain: "b", rule: { statements: [{ kind: "reject" }], comment: "text" } },
    {
      kind: "add-elements",
      set,
      elements: [{ key: ["10.0.0.1" as IpAddress, "tcp", 80], verdict: { kind: "goto", chain: "b" } }], // canonical
    },
  ];
  assert.deepEqual(nftScript("t", operations).split("\n"), [
    "flush chain ip t a",
    "add chain ip t b",
    'add rule ip t b reject comment "text"',
    "add element ip t service-ips { 10.0.0.1 . tcp . 80 : goto b }",
    "",
  ]);
  assert.throws(() => nftScript("t", [{ kind: "delete-table" }]), RangeError);
});
