/** The iptables mode: which payload each change sends. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { ip } from "../../model/testing/records.ts";
import { COUNTERS } from "./plan-options.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

test("after the first sync only what changed is sent, and nothing when nothing did", async () => {
  const bench = new BackendBench();
  for (let number = 1; number <= 20; number++) bench.set(`s${number}`, clusterIP(number));
  await bench.sync(true);
  const [jumps = "", , ...none] = bench.sent();
  assert.match(jumps, /^-I PREROUTING .* -j KUBE-SERVICES$/m);
  assert.deepEqual(none, []);
  bench.set("s7", clusterIP(7), 2);
  await bench.sync();
  const [payload = "", ...more] = bench.sent();
  assert.deepEqual(more, []);
  assert.match(payload, /ns\/s7 -> 10\.0\.2\.2:80/);
  assert.doesNotMatch(payload, /ns\/s(?!7\b)|filter/);
  await bench.sync();
  assert.deepEqual(bench.sent(), []);
  assert.deepEqual(bench.last, { filter: 0, nat: 0 });
});

test("a change of many service ports comes in portions, where the tools take time with the square of what one transaction names", async () => {
  for (const backEnd of ["nft", "legacy"] as const) {
    const bench = new BackendBench({ portsPerTransaction: 2 }, new MemoryIptables("IPv4", { backEnd }));
    const names = ["a", "b", "c", "d", "e"];
    const setAll = (port: (number: number) => ReturnType<typeof clusterIP> | undefined, endpoints?: number) => {
      for (const [index, name] of names.entries()) bench.set(name, port(index + 1), endpoints);
    };
    setAll(clusterIP);
    await bench.sync(true);
    bench.sent();
    const changedTogether = async (): Promise<number[]> => {
      await bench.sync();
      const transactions = bench.sent().flatMap((payload) => payload.split("COMMIT\n").slice(0, -1));
      return transactions.map((text) => text.match(/^:KUBE-SVC-/gm)?.length ?? 0);
    };
    const portions = backEnd === "nft" ? [2, 2, 1] : [5];
    setAll(clusterIP, 2);
    assert.deepEqual(await changedTogether(), portions);
    const fresh = new BackendBench();
    for (const [index, name] of names.entries()) fresh.set(name, clusterIP(index + 1), 2);
    await fresh.sync(true);
    assert.deepEqual(sortedLines(bench.kernel.dump("nat")), sortedLines(fresh.kernel.dump("nat")));
    setAll(() => undefined);
    assert.deepEqual(await changedTogether(), portions);
    assert.doesNotMatch(bench.kernel.dump("nat"), /KUBE-SVC-|KUBE-SEP-/);
  }
});

test("a full sync deletes many stale chains in portions where the tools prefer small transactions", async () => {
  for (const [backEnd, most] of [
    ["nft", 2],
    ["legacy", Number.POSITIVE_INFINITY],
  ] as const) {
    const bench = new BackendBench({ portsPerTransaction: 2 }, new MemoryIptables("IPv4", { backEnd }));
    for (let number = 1; number <= 5; number++) bench.set(`s${number}`, clusterIP(number), 2);
    await bench.sync(true);
    for (let number = 2; number <= 5; number++) bench.set(`s${number}`, undefined);
    bench.sent();
    await bench.sync(true);
    const transactions = bench.sent().flatMap((payload) => payload.split("COMMIT\n"));
    const deleted = transactions.map((text) => text.match(/^-X /gm)?.length ?? 0);
    assert.ok(Math.max(...deleted) <= most, deleted.join());
    assert.doesNotMatch(bench.kernel.dump("nat"), /ns\/s[2-5]/);
    assert.equal(bench.kernel.dump("nat").match(/^:KUBE-(SVC|SEP)-/gm)?.length, 3);
  }
});

test("a stale chain that a foreign rule holds is emptied, and the other portions are deleted", async () => {
  const bench = new BackendBench({ portsPerTransaction: 2 }, new MemoryIptables("IPv4", { backEnd: "nft" }));
  for (let number = 1; number <= 5; number++) bench.set(`s${number}`, clusterIP(number), 2);
  await bench.sync(true);
  const stale = () => bench.kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-"));
  const [held = ""] = stale();
  await bench.kernel.restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${held}\nCOMMIT\n`]);
  for (let number = 1; number <= 5; number++) bench.set(`s${number}`, undefined);
  const { failures } = await bench.sync(true);
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    [`chain ${held}`],
  );
  assert.deepEqual([stale(), bench.kernel.rules("nat", held)], [[held], []]);
});

test("totals follow every change, last what was written", async () => {
  const bench = new BackendBench();
  await bench.sync(true);
  const empty = { ...bench.totals };
  bench.set("a", clusterIP(1), 2);
  await bench.sync();
  // One dispatch rule, two endpoint choices, and two rules for each of two endpoints.
  assert.deepEqual(bench.totals, { filter: empty.filter, nat: empty.nat + 7 });
  assert.deepEqual(bench.last, { filter: 0, nat: 7 });
  bench.set("a", clusterIP(1), 0);
  await bench.sync();
  assert.deepEqual(bench.totals, { filter: empty.filter + 1, nat: empty.nat });
  bench.set("a", undefined);
  await bench.sync();
  assert.deepEqual(bench.totals, empty);
});

test("a few small syncs may follow each other at once, then each rests as long as it costs; after a full one there is a rest", async () => {
  let nowMs = 0;
  const kernel = new MemoryIptables("IPv4");
  const bench = new BackendBench({ nowMs: () => nowMs }, kernel);
  const restore = kernel.restore.bind(kernel);
  let tookMs = 0;
  kernel.restore = async (...given) => {
    nowMs += tookMs;
    await restore(...given);
  };
  const syncTaking = async (milliseconds: number, isFullSync = false): Promise<number> => {
    tookMs = milliseconds;
    await bench.sync(isFullSync);
    return Math.round(bench.backend.restMs);
  };
  bench.set("a", clusterIP(1), 2);
  assert.equal(await syncTaking(2_000, true), 1_000);
  nowMs += 10_000;
  const rests: number[] = [];
  for (let change = 1; change <= 8; change += 1) {
    bench.set("a", clusterIP(1), change % 2 === 0 ? 2 : 3);
    rests.push(await syncTaking(30));
    nowMs += rests.at(-1) ?? 0;
  }
  assert.deepEqual(rests.slice(0, 4), [0, 0, 0, 0]);
  assert.deepEqual(rests.slice(-2), [90, 90]);
});

test("a change of the node's addresses rewrites everything", async () => {
  let ips = [ip("10.1.0.1")];
  const bench = new BackendBench({ nodePortIPs: async () => ({ kind: "ips", ips }) });
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  await bench.sync(true);
  bench.sent();
  ips = [ip("10.1.0.2")];
  await bench.sync();
  assert.equal(bench.sent().length, 1);
  assert.match(bench.kernel.dump("nat"), /-A KUBE-SERVICES -d 10\.1\.0\.2\/32 .* -j KUBE-NODEPORTS/);
  assert.doesNotMatch(bench.kernel.dump("nat"), /10\.1\.0\.1/);
});

test("node ports stay at the addresses that are known while these cannot be read, and that is named until they can", async () => {
  let ips: readonly ReturnType<typeof ip>[] | undefined = [ip("10.1.0.1")];
  const bench = new BackendBench({ nodePortIPs: async () => ips && { kind: "ips", ips } });
  const subjects = async (isFull?: boolean) => (await bench.sync(isFull)).failures.map(({ subject }) => subject);
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  await bench.sync(true);
  ips = undefined;
  for (const isFull of [false, true]) {
    assert.deepEqual(await subjects(isFull), ["node ports"]);
    assert.match(bench.kernel.dump("nat"), /-A KUBE-SERVICES -d 10\.1\.0\.1\/32 .* -j KUBE-NODEPORTS/);
  }
  ips = [ip("10.1.0.2")];
  assert.deepEqual(await subjects(), []);
  assert.match(bench.kernel.dump("nat"), /-A KUBE-SERVICES -d 10\.1\.0\.2\/32 .* -j KUBE-NODEPORTS/);
});

test("without the node's addresses no node port is open, and the rest works", async () => {
  const bench = new BackendBench({ nodePortIPs: async () => undefined });
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  assert.deepEqual(
    (await bench.sync(true)).failures.map(({ subject }) => subject),
    ["node ports"],
  );
  assert.doesNotMatch(bench.kernel.dump("nat"), /-A KUBE-SERVICES .* -j KUBE-NODEPORTS/);
  assert.match(bench.kernel.dump("nat"), /-d 172\.16\.0\.1\/32/);
});

test("of ports with one address only the owner has rules there, in any order of arrival: a cluster IP's, then the first name's", async () => {
  const bench = new BackendBench();
  const entries = () =>
    [
      ...bench.kernel.dump("nat").matchAll(/-A KUBE-SERVICES -d 172.16.0.1\/32 .*"ns\/(\S+) (cluster|external) IP"/g),
    ].map(([, name, kind]) => `${name} ${kind}`);
  bench.set("a", { ...clusterIP(3), externalIPs: [ip("172.16.0.1")], isExternallyAccessible: true });
  await bench.sync(true);
  assert.deepEqual(entries(), ["a external"]);
  bench.set("c", clusterIP(1), 0);
  await bench.sync();
  assert.deepEqual(entries(), []);
  assert.match(bench.kernel.dump("filter"), /-d 172.16.0.1\/32 .*"ns\/c has no endpoints" .* -j REJECT/);
  bench.set("c", clusterIP(1));
  bench.set("b", clusterIP(1));
  await bench.sync();
  assert.deepEqual(entries(), ["b cluster"]);
  const incremental = [bench.kernel.dump("filter"), bench.kernel.dump("nat")];
  await bench.sync(true);
  assert.deepEqual(
    [bench.kernel.dump("filter"), bench.kernel.dump("nat")].map(sortedLines),
    incremental.map(sortedLines),
  );
  bench.set("b", undefined);
  bench.set("c", undefined);
  await bench.sync();
  assert.deepEqual(entries(), ["a external"]);
});

function sortedLines(text: string): string[] {
  return text.split("\n").sort();
}

test("what is left of an earlier run is deleted by the first sync", async () => {
  const kernel = new MemoryIptables("IPv4");
  const earlier = new BackendBench({}, kernel);
  earlier.set("gone", clusterIP(1), 2);
  earlier.set("stays", clusterIP(2), 2);
  await earlier.sync(true);
  const bench = new BackendBench({}, kernel);
  bench.set("stays", clusterIP(2), 1);
  await bench.sync(true);
  const fresh = new BackendBench();
  fresh.set("stays", clusterIP(2), 1);
  await fresh.sync(true);
  for (const table of ["filter", "nat"] as const) assert.equal(kernel.dump(table), fresh.kernel.dump(table));
});

test("rules name a counter only once it exists", async () => {
  const counters = new Set<string>();
  const kernel = new MemoryIptables("IPv4", { counters });
  const bench = new BackendBench({ counters: { ensure: async (name) => counters.has(name) } }, kernel);
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  await bench.sync(true);
  assert.doesNotMatch(kernel.dump("filter") + kernel.dump("nat"), /nfacct/);
  for (const name of Object.values(COUNTERS)) counters.add(name);
  await bench.sync(true);
  assert.match(kernel.dump("filter"), /-m nfacct --nfacct-name +ct_state_invalid_dropped_pkts/);
  assert.match(kernel.dump("nat"), /-d 127\.0\.0\.0\/8 .*-m nfacct --nfacct-name +localhost_nps_accepted_pkts/);
});

test("a large cluster does without comments on endpoints and without hourly full syncs", async () => {
  const bench = new BackendBench({ largeClusterEndpoints: 2 });
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  assert.equal(bench.backend.skipsPeriodicFullSync, false);
  assert.match(bench.kernel.dump("nat"), /ns\/a -> /);
  bench.set("a", clusterIP(1), 3);
  await bench.sync();
  assert.equal(bench.backend.skipsPeriodicFullSync, true);
  assert.doesNotMatch(bench.kernel.dump("nat"), /ns\/a -> /);
});
