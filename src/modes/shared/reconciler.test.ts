/** The reconciler on a kernel that is a map, and rejects what the test tells it to. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { turnsTaken } from "../../async/testing/test-yielder.ts";
import { turnPolicy } from "../../async/turns.ts";
import type { SyncInput, SyncOutcome } from "../../contract/backend.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import { silentLogger } from "../../logging/logger.ts";
import { KeyOwners } from "../../model/key-owners.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { makeServicePort } from "../../model/testing/records.ts";
import { Reconciler, type Target, type Work } from "./reconciler.ts";
import { type Parts, WantedParts } from "./wanted-parts.ts";

interface Kinds {
  /** Node port → owner. */
  readonly ports: string;
}

class MapTarget implements Target<Kinds, object> {
  readonly kernel = new Map<string, string>();
  readonly refuses = new Set<string>();
  #doubt = new Set<string>();
  looks = 0;
  writes = 0;
  fails = false;

  newWanted(): WantedParts<Kinds> {
    return new WantedParts<Kinds>({ ports: new KeyOwners<string>() });
  }

  async look(): Promise<object> {
    this.looks += 1;
    return {};
  }

  async refresh(_known: object, { changedPorts }: SyncInput): Promise<Iterable<string>> {
    return changedPorts;
  }

  plan(key: string, { nodePort }: ServicePort): Parts<Kinds> {
    return { ports: [[String(nodePort), key]] };
  }

  async apply({ wanted: { of }, isWhole, notes }: Work<Kinds, object>): Promise<void> {
    if (this.fails) throw new Error("the kernel is away");
    const doubtful = this.#doubt;
    this.#doubt = new Set();
    const all = isWhole ? [...of.ports.keys(), ...this.kernel.keys()] : [...of.ports.touched.keys(), ...doubtful];
    for (const key of new Set(all)) {
      const wanted = of.ports.effective(key);
      if (wanted?.value === this.kernel.get(key)) continue;
      this.writes += 1;
      if (this.refuses.has(key)) {
        this.#doubt.add(key);
        notes.refuse(wanted?.owner, `port ${key}`, "no");
      } else if (wanted === undefined) this.kernel.delete(key);
      else this.kernel.set(key, wanted.value);
    }
  }
}

class Rig {
  readonly target = new MapTarget();
  readonly clock = new FakeClock();
  readonly services = new Map<string, ServicePort>();
  asked = 0;
  readonly reconciler: Reconciler<Kinds, object>;
  readonly #changed = new Set<string>();

  constructor() {
    this.reconciler = new Reconciler({
      ...{ target: this.target, place: "the map", waits: new KernelWaits(), longestRetryMs: 4_000 },
      ...{ clock: this.clock, log: silentLogger },
    });
    this.reconciler.retryBy(() => (this.asked += 1), new AbortController().signal);
  }

  put(key: string, nodePort: number | undefined): void {
    this.#changed.add(key);
    if (nodePort === undefined) this.services.delete(key);
    else this.services.set(key, makeServicePort({ nodePort }));
  }

  async sync(isFullSync = false): Promise<SyncOutcome> {
    const changedPorts = new Set(this.#changed);
    const { services } = this;
    const input = { isFullSync, services, endpoints: new Map(), endpointCount: 0, changedPorts };
    const outcome = await this.reconciler.sync({ ...input, zone: undefined, serviceCIDRs: [] }, NEVER);
    this.#changed.clear();
    return outcome;
  }
}

const NEVER = new AbortController().signal;

test("of two service ports that want one part the first by name has it, in any order of events", async () => {
  const rig = new Rig();
  rig.put("b", 80);
  await rig.sync();
  rig.put("a", 80);
  await rig.sync();
  assert.deepEqual([...rig.target.kernel], [["80", "a"]]);
  rig.put("a", 81);
  await rig.sync();
  assert.deepEqual(Object.fromEntries(rig.target.kernel), { 80: "b", 81: "a" });
  rig.put("b", undefined);
  await rig.sync();
  assert.deepEqual([...rig.target.kernel], [["81", "a"]]);
  assert.equal(rig.target.looks, 1, "the first sync alone looks at everything");
});

test("what is refused is named, keeps what it had, and is done with the next sync that may", async () => {
  const rig = new Rig();
  rig.put("a", 80);
  await rig.sync();
  rig.target.refuses.add("81").add("80");
  rig.put("a", 81);
  rig.put("b", 1);
  const refused = await rig.sync();
  assert.deepEqual(
    refused.failures.map(({ reason }) => reason),
    ["no", "no"],
  );
  assert.deepEqual(Object.fromEntries(rig.target.kernel), { 1: "b", 80: "a" });
  rig.target.refuses.clear();
  const { failures } = await rig.sync();
  assert.deepEqual(failures, []);
  assert.deepEqual(Object.fromEntries(rig.target.kernel), { 1: "b", 81: "a" });
  const { writes, looks } = rig.target;
  await rig.sync(true);
  assert.deepEqual(
    [rig.target.writes, rig.target.looks],
    [writes, looks + 1],
    "a full sync looks, and finds nothing to do",
  );
});

test("asks for another attempt after 1, 2, 4 seconds and then the longest pause, and soon again after one that works", async () => {
  const rig = new Rig();
  rig.put("a", 80);
  rig.target.refuses.add("80");
  for (const [attempt, pauseMs] of [1_000, 2_000, 4_000, 4_000].entries()) {
    await rig.sync();
    await rig.clock.advance(pauseMs - 1);
    assert.equal(rig.asked, attempt);
    await rig.clock.advance(1);
    assert.equal(rig.asked, attempt + 1);
  }
  rig.target.refuses.clear();
  await rig.sync();
  rig.put("a", 81);
  rig.target.refuses.add("81");
  await rig.sync();
  await rig.clock.advance(1_000);
  assert.equal(rig.asked, 5);
  rig.reconciler.stop();
  await rig.sync();
  await rig.clock.advance(60_000);
  assert.equal(rig.asked, 5, "nothing is asked for after the end");
});

test("after a sync that rejects, and when told to forget, everything is looked at again", async () => {
  const rig = new Rig();
  rig.put("a", 80);
  await rig.sync();
  rig.target.fails = true;
  rig.put("a", 81);
  await assert.rejects(rig.sync(), /away/);
  assert.equal(rig.reconciler.known, undefined);
  await rig.clock.advance(1_000);
  assert.equal(rig.asked, 1, "that is tried again as well");
  await assert.rejects(rig.sync(), /away/);
  rig.reconciler.hurry();
  assert.equal(rig.asked, 2, "what need not wait does not");
  rig.target.fails = false;
  rig.target.kernel.set("99", "none");
  await rig.sync();
  assert.deepEqual([[...rig.target.kernel], rig.target.looks], [[["81", "a"]], 3]);
  rig.reconciler.forget();
  await rig.sync();
  assert.equal(rig.target.looks, 4);
});

test("service ports that change together are planned in turns with what else the process has to do", async (t) => {
  t.mock.method(turnPolicy, "isDue", () => true);
  const rig = new Rig();
  await rig.sync();
  for (const [index, key] of ["a", "b", "c"].entries()) rig.put(key, 80 + index);
  const before = turnsTaken();
  await rig.sync();
  assert.equal(turnsTaken() - before, 3);
});
