/**
 * Any history of Services and EndpointSlices, synced step by step, leaves the same table as one full sync of the final
 * objects into an empty kernel, despite anything that the kernel rejects and other programs destroy in the meantime.
 *
 * `KPTS_PROPERTY_RUNS` sets how many histories are tried (per family and kind), `KPTS_PROPERTY_SEED` repeats a run.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RELEASES, type Release } from "../../src/contract/config/release.ts";
import type { NftTableContent } from "../../src/kernel/nftables/nftables.ts";
import { elementKey } from "../../src/kernel/nftables/ruleset.ts";
import { LAYOUT_NAMES } from "../../src/modes/nftables/layout-name.ts";
import { portTextOf } from "../../src/modes/nftables/names.ts";
import { operationText } from "../../src/modes/nftables/testing/backend-rig.ts";
import type { MemoryNftKernel } from "../../testkit/fakes/nftables/memory-nftables.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { canonicalNftables } from "../conformance/canonical-nftables.ts";
import { type Step, stepArbitrary } from "./cluster-arbitrary.ts";
import {
  type Fault,
  FaultyNode,
  faultArbitrary,
  type Refusal,
  serviceOf,
  serviceOfElement,
} from "./nftables-faults.ts";
import { NftablesHistory } from "./nftables-history.ts";

const RUNS = historyRuns("KPTS_PROPERTY_RUNS", 300);

/** The members of a listing that matter here. */
interface Listed {
  readonly rule?: { readonly chain: string };
  readonly set?: { readonly elem?: readonly unknown[] };
  readonly map?: { readonly elem?: readonly unknown[] };
}

/**
 * A shorter and much faster `canonicalNftables`: elements are sets, and objects come in any order, except that the
 * rules of a chain keep theirs. For listings of the kernel in memory, whose members have a fixed order.
 */
function tableText(objects: readonly Listed[]): string {
  const rules = new Map<string, string>();
  const lines: string[] = [];
  for (const object of objects) {
    const elements = (object.set ?? object.map)?.elem;
    if (object.rule !== undefined) {
      const { chain } = object.rule;
      rules.set(chain, `${rules.get(chain) ?? ""}${JSON.stringify(object)}\n`);
    } else if (elements === undefined) lines.push(JSON.stringify(object));
    else {
      const { elem: _, ...set } = { ...object.set, ...object.map };
      const texts = elements.map((element) => JSON.stringify(element)).sort();
      lines.push(`${JSON.stringify(set)} ${texts.join()}`);
    }
  }
  return [...lines, ...rules.values()].sort().join("\n");
}

async function assertAsFromScratch({ rig }: NftablesHistory): Promise<void> {
  const found = rig.list();
  const expected = (await rig.fromNothing()).list();
  if (tableText(found as readonly Listed[]) === tableText(expected as readonly Listed[])) return;
  const linesOf = (objects: readonly unknown[]) => canonicalNftables(objects).split("\n");
  const [lines, expectedLines] = [linesOf(found), linesOf(expected)];
  const without = (some: readonly string[], others: readonly string[]) => some.filter((line) => !others.includes(line));
  assert.deepEqual(without(lines, expectedLines), [], "what should not be there");
  assert.deepEqual(without(expectedLines, lines), [], "what is missing");
}

/** A process may be followed by one that imitates another release. */
type Happening = Step | { readonly kind: "restart"; readonly release: Release };

const restart: fc.Arbitrary<Happening> = fc
  .constantFrom(...RELEASES)
  .map((release): Happening => ({ kind: "restart", release }));

function happeningArbitrary(family: "IPv4" | "IPv6"): fc.Arbitrary<Happening> {
  return fc.oneof({ weight: 30, arbitrary: stepArbitrary(family) }, { weight: 1, arbitrary: restart });
}

const KINDS = LAYOUT_NAMES.flatMap((layout) => (["IPv4", "IPv6"] as const).map((family) => ({ layout, family })));

for (const { layout, family } of KINDS) {
  test(`${layout}, ${family}: after every sync the table is that of a full sync from nothing`, async () => {
    const steps = fc.array(happeningArbitrary(family), { maxLength: 30, size: "max" });
    await fc.assert(
      fc.asyncProperty(steps, async (happenings) => {
        const history = new NftablesHistory(family, { layout, ...(family === "IPv4" && { portsAtOnce: 2 }) });
        if (family === "IPv4") history.refuseAtLocalhost();
        for (const step of [...happenings, { kind: "sync", isFullSync: false } as const]) {
          if (step.kind === "restart") {
            history.rig.release = step.release;
            history.rig.restart();
          } else if (step.kind !== "sync") history.apply(step);
          else {
            const { failures } = await history.sync(step.isFullSync);
            assert.deepEqual(failures, []);
            await assertAsFromScratch(history);
          }
        }
        assert.equal(history.rig.kernel.refusals, 0);
        history.rig.kernel.takeOperations();
        history.rig.restart();
        await history.sync(true);
        assert.deepEqual(history.rig.kernel.takeOperations().map(operationText), [], "a restart changes nothing");
        history.rig.close();
      }),
      { numRuns: RUNS },
    );
  });
}

/** Service → its objects in the table: chains with their rules, affinity sets, and the elements that tell their owner. */
function byService(content: NftTableContent | undefined): Map<string, Map<string, string>> {
  const services = new Map<string, Map<string, string>>();
  const note = (service: string | undefined, what: string, value: unknown) => {
    if (service === undefined) return;
    const known = services.get(service) ?? new Map<string, string>();
    services.set(service, known.set(what, JSON.stringify(value)));
  };
  const ownerOf = (name: string) => {
    const text = portTextOf(name);
    return text === undefined ? undefined : serviceOf(text);
  };
  for (const [name, { ruleDigests }] of content?.chains ?? []) note(ownerOf(name), `chain ${name}`, ruleDigests);
  for (const [name, { timeoutSeconds, elements }] of content?.sets ?? []) {
    note(ownerOf(name), `set ${name}`, timeoutSeconds);
    for (const element of elements) {
      const { key, verdict, target, comment } = element;
      note(serviceOfElement(element), `${name} ${elementKey(key)}`, [verdict, target, comment]);
    }
  }
  return services;
}

async function contentOf(kernel: MemoryNftKernel): Promise<NftTableContent | undefined> {
  return await kernel.connectAnother().read();
}

/** Asserts that every Service that did not fail has everything that it should have, with the right values. */
async function assertOthersAreRight({ rig }: NftablesHistory, failed: ReadonlySet<string>): Promise<void> {
  const content = await contentOf(rig.kernel);
  const found = byService(content);
  const fresh = await rig.fromNothing();
  for (const [service, expected] of byService(await contentOf(fresh))) {
    if (failed.has(service)) continue;
    const there = found.get(service);
    for (const [what, value] of expected) {
      if (there?.get(what) === value) continue;
      // A rejected Service may still hold a key that precedes this one.
      const holder = [...failed].find((other) => found.get(other)?.has(what));
      assert.ok(holder !== undefined && holder < service, `${service}: ${what} is ${there?.get(what)}, not ${value}`);
    }
  }
}

const KERNELS = LAYOUT_NAMES.flatMap((layout) => [false, true].map((releasesLate) => ({ layout, releasesLate })));

for (const { layout, releasesLate } of KERNELS) {
  const kernelName = `${layout}, kernel ${releasesLate ? "before 6.2" : "6.2 and later"}`;
  test(`faults (${kernelName}): the others are right at once, and all are when it ends`, async () => {
    const steps = fc.array(
      fc.oneof(
        { weight: 5, arbitrary: stepArbitrary("IPv4") as fc.Arbitrary<Step | Fault> },
        { weight: 1, arbitrary: faultArbitrary() as fc.Arbitrary<Step | Fault> },
      ),
      { maxLength: 40, size: "max" },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (happenings) => {
        const history = new NftablesHistory("IPv4", { layout, releasesLate, portsAtOnce: 2 });
        if (releasesLate) history.refuseAtLocalhost();
        const { rig } = history;
        const node = new FaultyNode(history);
        for (const step of happenings) {
          if (isFault(step)) await node.take(step);
          else if (step.kind !== "sync") history.apply(step);
          else {
            rig.passTime(700);
            let { failures } = await history.sync(step.isFullSync);
            // A change of the table after it was read is noticed, but not in that sync.
            if (rig.driver.isSyncDue) ({ failures } = await history.sync(false));
            const failed = new Set(failures.map(({ subject }) => subject.split(":", 1)[0] ?? subject));
            for (const service of failed) {
              // A Service that gives up an address passes it to the next in line, and fails if that one's element is rejected.
              const isAtFault = (refusal: Refusal) => refusal.service === service || refusal.kind === "add-elements";
              assert.ok(node.refusals.some(isAtFault), `${service}'s failure has no cause`);
            }
            await assertOthersAreRight(history, failed);
          }
        }
        await node.heal();
        rig.passTime(2000);
        assert.deepEqual((await history.sync(false)).failures, []);
        rig.passTime(2000);
        assert.deepEqual((await history.sync(false)).failures, []);
        await node.removeRenamed();
        await assertAsFromScratch(history);
        rig.close();
      }),
      { numRuns: RUNS / 2 },
    );
  });
}

function isFault(step: Step | Fault): step is Fault {
  return ["refuse", "damage", "race", "heal", "restart"].includes(step.kind);
}
