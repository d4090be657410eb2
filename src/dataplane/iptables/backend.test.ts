import assert from "node:assert/strict";
import { test } from "node:test";
import { TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { testYielder } from "../../async/testing/test-yielder.ts";
import { IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip, makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import type { LostRules } from "../../sync/backend.ts";
import { IptablesBackend, type IptablesBackendOptions } from "./backend.ts";
import { COUNTERS } from "./plan-options.ts";

/** A backend over an in-memory kernel, with the maps that it is given. */
class Bench {
  readonly kernel: MemoryIptables;
  readonly backend: IptablesBackend;
  readonly warnings: string[] = [];
  readonly errors: string[] = [];
  readonly counts = { restoreFailures: 0, partialRestoreFailures: 0 };
  readonly totals = { filter: 0, nat: 0 };
  readonly last = { filter: 0, nat: 0 };
  readonly payloads: string[] = [];
  isIntact: (() => Promise<string>) | undefined;
  readonly #cluster = new TestCluster();

  constructor(options: Partial<IptablesBackendOptions> = {}, kernel = new MemoryIptables("IPv4")) {
    this.kernel = kernel;
    const restore = kernel.restore.bind(kernel);
    kernel.restore = async (payload, restoreOptions) => {
      const text = [...payload].join("");
      this.payloads.push(text);
      await restore([text], restoreOptions);
    };
    const log: Logger = {
      ...silentLogger,
      warn: (message, facts) => void this.warnings.push(`${message} ${JSON.stringify(facts)}`),
      error: (message, error) => void this.errors.push(`${message}: ${String(error)}`),
      with: () => log,
    };
    this.backend = new IptablesBackend({
      config: {
        family: "IPv4",
        nodeName: "node-a",
        nodeIP: ip("192.168.0.2"),
        masqueradeMark: 1 << 14,
        masqueradeAll: false,
        detector: { kind: "none" },
        localhostNodePorts: true,
        conntrackLiberal: false,
      },
      iptables: kernel,
      yielder: testYielder,
      counters: undefined,
      nodePortIPs: async () => ({ kind: "all" }),
      metrics: {
        restoreFailures: { inc: () => this.#count("restoreFailures") },
        partialRestoreFailures: { inc: () => this.#count("partialRestoreFailures") },
        setTotal: (table, rules) => {
          this.totals[table] = rules;
        },
        setLast: (table, rules) => {
          this.last[table] = rules;
        },
      },
      monitor: async (isIntact) => {
        this.isIntact = isIntact;
      },
      log,
      nowMs: () => 0,
      ...options,
    });
  }

  /** Sets a service port with this many endpoints; `undefined` removes it. */
  set(name: string, port: Partial<ServicePort> | undefined, endpoints = 1): void {
    const portName = servicePortName("ns", name, "", "TCP");
    const declared = makeServicePort({ name: portName, ...port });
    if (port === undefined) {
      this.#cluster.delete(declared);
      return;
    }
    const addresses = Array.from({ length: endpoints }, (_, index) => `10.0.${name.length}.${index + 1}`);
    this.#cluster.set(
      declared,
      addresses.map((address) => makeEndpoint(address)),
    );
  }

  touch(keys: Iterable<string>): void {
    this.#cluster.driver.touch(keys);
  }

  sync(full = false) {
    return this.#cluster.driver.sync(this.backend, { full });
  }

  #count(name: keyof Bench["counts"]): void {
    this.counts[name] += 1;
  }

  /** The payloads since the last call. */
  sent(): string[] {
    return this.payloads.splice(0);
  }
}

const clusterIP = (number: number) => ({ clusterIP: ip(`172.16.0.${number}`) });

test("after the first sync only what changed is sent, and nothing when nothing did", async () => {
  const bench = new Bench();
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

test("totals follow every change, last what was written", async () => {
  const bench = new Bench();
  await bench.sync(true);
  const empty = { ...bench.totals };
  bench.set("a", clusterIP(1), 2);
  await bench.sync();
  // One entry, two choices, two rules for each of two endpoints.
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
  const bench = new Bench({ nowMs: () => nowMs }, kernel);
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
  const bench = new Bench({ nodePortIPs: async () => ({ kind: "ips", ips }) });
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  await bench.sync(true);
  bench.sent();
  ips = [ip("10.1.0.2")];
  await bench.sync();
  assert.equal(bench.sent().length, 1);
  assert.match(bench.kernel.dump("nat"), /-A KUBE-SERVICES -d 10\.1\.0\.2\/32 .* -j KUBE-NODEPORTS/);
  assert.doesNotMatch(bench.kernel.dump("nat"), /10\.1\.0\.1/);
});

test("without the node's addresses no node port is open, and the rest works", async () => {
  const bench = new Bench({ nodePortIPs: async () => undefined });
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  assert.deepEqual((await bench.sync(true)).failures, []);
  assert.doesNotMatch(bench.kernel.dump("nat"), /-A KUBE-SERVICES .* -j KUBE-NODEPORTS/);
  assert.match(bench.kernel.dump("nat"), /-d 172\.16\.0\.1\/32/);
});

test("of ports with one address only the owner has rules there, whoever came first: a cluster IP's, then the first name's", async () => {
  const bench = new Bench();
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

test("while the lock is held a sync fails as a whole, is counted, and the next one writes everything", async () => {
  const bench = new Bench();
  bench.set("a", clusterIP(1));
  await bench.sync(true);
  bench.set("a", clusterIP(1), 2);
  bench.kernel.isLocked = true;
  await assert.rejects(bench.sync(), { code: "lock_held" });
  assert.deepEqual(bench.counts, { restoreFailures: 1, partialRestoreFailures: 1 });
  assert.equal(await bench.backend.monitor(() => {}, new AbortController().signal), undefined);
  assert.equal(await bench.isIntact?.(), "unknown");
  bench.kernel.isLocked = false;
  bench.sent();
  await bench.sync();
  assert.match(bench.sent()[0] ?? "", /^\*filter\n[^*]*\*nat\n/);
  assert.match(bench.kernel.dump("nat"), /ns\/a -> 10\.0\.1\.2:80/);
});

test("a partial sync that is refused becomes a full one at once", async () => {
  const bench = new Bench();
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  // Somebody takes a rule away that the next change wants to delete.
  bench.kernel.flush("nat");
  bench.set("a", undefined);
  assert.deepEqual((await bench.sync()).failures, []);
  assert.deepEqual(bench.counts, { restoreFailures: 1, partialRestoreFailures: 1 });
  assert.match(bench.errors[0] ?? "", /^Partial sync was refused, rewriting all rules: /);
  assert.match(bench.kernel.dump("nat"), /-A KUBE-SERVICES .* -j KUBE-NODEPORTS/);
  assert.doesNotMatch(bench.kernel.dump("nat"), /KUBE-SVC-/);
});

test("what is left of an earlier run is deleted by the first sync", async () => {
  const kernel = new MemoryIptables("IPv4");
  const earlier = new Bench({}, kernel);
  earlier.set("gone", clusterIP(1), 2);
  earlier.set("stays", clusterIP(2), 2);
  await earlier.sync(true);
  const bench = new Bench({}, kernel);
  bench.set("stays", clusterIP(2), 1);
  await bench.sync(true);
  const fresh = new Bench();
  fresh.set("stays", clusterIP(2), 1);
  await fresh.sync(true);
  for (const table of ["filter", "nat"] as const) assert.equal(kernel.dump(table), fresh.kernel.dump(table));
});

test("rules name a counter only once it exists", async () => {
  const counters = new Set<string>();
  const kernel = new MemoryIptables("IPv4", { counters });
  const bench = new Bench({ counters: { ensure: async (name) => counters.has(name) } }, kernel);
  bench.set("a", { ...clusterIP(1), nodePort: 30080, isExternallyAccessible: true });
  await bench.sync(true);
  assert.doesNotMatch(kernel.dump("filter") + kernel.dump("nat"), /nfacct/);
  for (const name of Object.values(COUNTERS)) counters.add(name);
  await bench.sync(true);
  assert.match(kernel.dump("filter"), /-m nfacct --nfacct-name +ct_state_invalid_dropped_pkts/);
  assert.match(kernel.dump("nat"), /-d 127\.0\.0\.0\/8 .*-m nfacct --nfacct-name +localhost_nps_accepted_pkts/);
});

test("a large cluster does without comments on endpoints and without hourly full syncs", async () => {
  const bench = new Bench({ largeClusterEndpoints: 2 });
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  assert.equal(bench.backend.skipsPeriodicFullSync, false);
  assert.match(bench.kernel.dump("nat"), /ns\/a -> /);
  bench.set("a", clusterIP(1), 3);
  await bench.sync();
  assert.equal(bench.backend.skipsPeriodicFullSync, true);
  assert.doesNotMatch(bench.kernel.dump("nat"), /ns\/a -> /);
});

test("the rules count as intact until one of the jumps is gone", async () => {
  const bench = new Bench();
  await bench.backend.monitor(() => {}, new AbortController().signal);
  assert.equal(await bench.isIntact?.(), "unknown");
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  bench.kernel.flush("filter");
  assert.equal(await bench.isIntact?.(), "absent");
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  bench.kernel.flush("nat", { deleteChains: true });
  assert.equal(await bench.isIntact?.(), "absent");
});

for (const backEnd of ["nft", "legacy"] as const) {
  test(`${backEnd}: a service's chain that others changed is written again, and nothing else`, async () => {
    const bench = new Bench({}, new MemoryIptables("IPv4", { backEnd }));
    const lost: (readonly string[] | undefined)[] = [];
    const onLost = (what?: LostRules) => void lost.push(what === undefined ? undefined : [...what.ports]);
    await bench.backend.monitor(onLost, new AbortController().signal);
    bench.set("a", clusterIP(1), 2);
    bench.set("b", clusterIP(2), 2);
    await bench.sync(true);
    const before = bench.kernel.dump("nat");
    const chains = bench.kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-"));
    const endpoint = bench.kernel.chains("nat").find((name) => name.startsWith("KUBE-SEP-"));
    assert.equal(await bench.isIntact?.(), "present");
    for (const line of [`-F ${chains[0]}`, `-I ${chains[1]} -j RETURN`, `-A ${endpoint} -j ACCEPT`]) {
      lost.length = 0;
      bench.sent();
      await bench.kernel.restore([`*nat\n${line}\nCOMMIT\n`]);
      assert.equal(await bench.isIntact?.(), "present");
      const [owners = assert.fail("a full sync")] = lost;
      assert.equal(owners.length, 1, line);
      assert.match(bench.warnings.at(-1) ?? "", /changed our iptables rules; repairing them .*"KUBE-S(VC|EP)-/);
      bench.touch(owners);
      bench.sent();
      await bench.sync();
      assert.equal(bench.sent().length, 1);
      assert.equal(bench.kernel.dump("nat").replaceAll(/^#.*/gm, ""), before.replaceAll(/^#.*/gm, ""), line);
      assert.equal(await bench.isIntact?.(), "present");
    }
    assert.equal(bench.warnings.length, 3);
    // Theirs, leading to ours: no loss.
    lost.length = 0;
    await bench.kernel.restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${chains[0]}\nCOMMIT\n`]);
    for (let n = 0; n < 3; n += 1) assert.equal(await bench.isIntact?.(), "present");
    assert.deepEqual([lost, bench.warnings.length], [[], 3]);
    // What all share calls for everything.
    await bench.kernel.restore(["*filter\n-I KUBE-FORWARD -j ACCEPT\nCOMMIT\n"]);
    assert.equal(await bench.isIntact?.(), "absent");
    assert.equal(await bench.isIntact?.(), "absent");
    assert.equal(bench.warnings.length, 4);
    await bench.sync(true);
    assert.equal(await bench.isIntact?.(), "present");
  });
}

test("a look that takes long is followed by a rest, and by another look within the period", async () => {
  const kernel = new MemoryIptables("IPv4", { backEnd: "legacy" });
  let nowMs = 0;
  let looks = 0;
  const chainUses = kernel.chainUses.bind(kernel);
  kernel.chainUses = async (table) => {
    if (table === "nat") looks += 1;
    nowMs += 1_000; // there are two tables
    return await chainUses(table);
  };
  const bench = new Bench({ nowMs: () => nowMs, checkPeriodMs: 30_000 }, kernel);
  await bench.backend.monitor(() => {}, new AbortController().signal);
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  nowMs += 29_999;
  await bench.isIntact?.();
  assert.equal(looks, 1);
  nowMs += 1;
  await bench.isIntact?.();
  assert.equal(looks, 2);
});

test("while the kernel counts no change, no chain is looked at", async () => {
  const bench = new Bench();
  await bench.backend.monitor(() => assert.fail("lost"), new AbortController().signal);
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  bench.kernel.chainUses = () => assert.fail("looked");
  for (let n = 0; n < 3; n += 1) assert.equal(await bench.isIntact?.(), "present");
});

test("local policies without a local endpoint are counted", async () => {
  const bench = new Bench();
  bench.set("a", { ...clusterIP(1), internalPolicyLocal: true });
  bench.set("b", { ...clusterIP(2), externalPolicyLocal: true, nodePort: 30080, isExternallyAccessible: true });
  assert.deepEqual((await bench.sync(true)).noLocalEndpoints, { internal: 1, external: 1 });
  bench.set("a", undefined);
  assert.deepEqual((await bench.sync()).noLocalEndpoints, { internal: 0, external: 1 });
});

/** A kernel that refuses new nat rules with this text, and names their lines or not. */
function kernelRefusing(text: string, namesLine: boolean): MemoryIptables & { isHealed: boolean } {
  const kernel = Object.assign(new MemoryIptables("IPv4"), { isHealed: false });
  const restore = kernel.restore.bind(kernel);
  kernel.restore = async (payload, options) => {
    const tables = [...payload].join("").split(/(?<=^COMMIT\n)/m);
    for (const [index, table] of tables.entries()) {
      const at = table.split("\n").findIndex((line) => /^-[AI] /.test(line) && line.includes(text));
      if (table.startsWith("*nat") && at >= 0 && !kernel.isHealed) {
        const line = namesLine ? tables.slice(0, index).join("").split("\n").length + at : undefined;
        throw new IptablesRestoreError("failed", "iptables-restore", 1, "refused", line);
      }
      await restore([table], options);
    }
  };
  return kernel;
}

for (const namesLine of [true, false]) {
  test(`a refused port keeps its last good rules in both tables (line ${namesLine ? "named" : "not named"})`, async () => {
    const kernel = kernelRefusing("10.0.3.1", namesLine);
    const bench = new Bench({}, kernel);
    bench.set("bad", clusterIP(1), 0);
    bench.set("good", clusterIP(2));
    await bench.sync(true);
    const before = kernel.dump("filter") + kernel.dump("nat");
    assert.match(before, /"ns\/bad has no endpoints"/);
    bench.set("bad", clusterIP(1), 1);
    for (const isFullSync of [false, false, true]) {
      const { failures } = await bench.sync(isFullSync);
      assert.deepEqual(failures, [{ subject: "ns/bad", reason: "refused" }]);
      assert.equal(kernel.dump("filter") + kernel.dump("nat"), before);
    }
    kernel.isHealed = true;
    assert.deepEqual((await bench.sync()).failures, []);
    assert.doesNotMatch(kernel.dump("filter"), /ns\/bad/);
    assert.match(kernel.dump("nat"), /10\.0\.3\.1/);
  });
}

test("a port that was refused gets the address that it owns once it is accepted", async () => {
  const kernel = kernelRefusing("10.0.1.1", true);
  const bench = new Bench({}, kernel);
  bench.set("a", clusterIP(1));
  bench.set("bb", clusterIP(1));
  await bench.sync(true);
  const entries = () =>
    [...kernel.dump("nat").matchAll(/-A KUBE-SERVICES .*"ns\/(\S+) cluster IP"/g)].map(([, name]) => name);
  assert.deepEqual(entries(), []);
  kernel.isHealed = true;
  await bench.sync();
  assert.deepEqual(entries(), ["a"]);
});

test("more offenders than are worth naming one by one: the others are programmed all the same", async () => {
  const kernel = new MemoryIptables("IPv4");
  const restore = kernel.restore.bind(kernel);
  kernel.restore = async (payload, options) => {
    const text = [...payload].join("");
    const line = text.split("\n").findIndex((one) => /^-[AI] .*ns\/bad/.test(one)) + 1;
    if (line > 0) throw new IptablesRestoreError("failed", "iptables-restore", 1, `line ${line} failed`, line);
    await restore([text], options);
  };
  const bench = new Bench({}, kernel);
  const names = Array.from({ length: 40 }, (_, index) => (index % 3 === 0 ? `bad${index}` : `good${index}`));
  for (const [index, name] of names.entries()) bench.set(name, clusterIP(index + 1));
  const { failures } = await bench.sync(true);
  const offenders = names.filter((name) => name.startsWith("bad"));
  assert.deepEqual(failures.map(({ subject }) => subject).sort(), offenders.map((name) => `ns/${name}`).sort());
  const fresh = new Bench();
  for (const [index, name] of names.entries()) if (!offenders.includes(name)) fresh.set(name, clusterIP(index + 1));
  await fresh.sync(true);
  assert.equal(kernel.dump("nat"), fresh.kernel.dump("nat"));
  assert.deepEqual(bench.totals, fresh.totals);
});

test("a service whose name no rule can carry is named, and later changes are sent by themselves all the same", async () => {
  const bench = new Bench();
  bench.set("a", clusterIP(1));
  await bench.sync(true);
  bench.set("l".repeat(260), clusterIP(2), 0);
  const { failures } = await bench.sync();
  assert.match(failures[0]?.reason ?? "", /at most 255 characters/);
  bench.sent();
  bench.set("b", clusterIP(3));
  const next = await bench.sync();
  assert.deepEqual(next.failures, failures);
  const [payload = "", ...more] = bench.sent();
  assert.match(payload, /-I KUBE-SERVICES .*ns\/b cluster IP/);
  assert.doesNotMatch(payload, /ns\/a/);
  assert.deepEqual(more, []);
  bench.set("l".repeat(260), undefined);
  assert.deepEqual((await bench.sync()).failures, []);
});
