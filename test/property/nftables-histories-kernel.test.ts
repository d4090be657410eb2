/**
 * Random histories on the real kernel: after every sync `nft` lists the same as after one full sync of the same objects
 * into another table. `KPTS_PROPERTY_KERNEL_RUNS` sets how many histories are tried per family.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { RELEASES, type Release } from "../../src/contract/config/release.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../src/kernel/nftables/netlink-nftables.ts";
import { LAYOUT_NAMES } from "../../src/modes/nftables/layout-name.ts";
import { BackendRig } from "../../src/modes/nftables/testing/backend-rig.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { canonicalNftables } from "../conformance/canonical-nftables.ts";
import { type Step, stepArbitrary } from "./cluster-arbitrary.ts";
import { NftablesHistory } from "./nftables-history.ts";
import { type Meddling, meddle, meddlingArbitrary, removeTraces } from "./nftables-meddling.ts";

const RUNS = historyRuns("KPTS_PROPERTY_KERNEL_RUNS", 16) / LAYOUT_NAMES.length;
const FAMILIES = [
  { family: "IPv4", nft: "ip" },
  { family: "IPv6", nft: "ip6" },
] as const;
const VARIANTS = LAYOUT_NAMES.flatMap((layout) => FAMILIES.map((one) => ({ ...one, layout })));

const TABLE = "kube-proxy";
/** The table of the one full sync. */
const FRESH = "kube-proxy-fresh";

type Listed = Readonly<Record<string, { readonly name?: string; readonly table?: string }>>;

/** The contents of both tables from one listing, with {@link FRESH} under the name of the other. */
function listed(): { readonly found: string; readonly fresh: string } {
  const text = execFileSync("nft", ["-j", "list", "ruleset"], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const objects: readonly Listed[] = JSON.parse(text).nftables;
  const of = (name: string) => {
    const own = objects.filter((object) =>
      Object.entries(object).some(([kind, { name: own, table }]) => (kind === "table" ? own : table) === name),
    );
    assert.ok(own.length > 0, `there is no table ${name}`);
    return canonicalNftables(own);
  };
  return { found: of(TABLE), fresh: of(FRESH).replaceAll(`"${FRESH}"`, `"${TABLE}"`) };
}

/** Short histories hardly ever change existing objects. */
const LONG = { minLength: 20, maxLength: 60, size: "max" } as const;

/** A process may be followed by one that imitates another release. */
type Happening = Step | { readonly kind: "restart"; readonly release: Release };

const restart: fc.Arbitrary<Happening> = fc
  .constantFrom(...RELEASES)
  .map((release): Happening => ({ kind: "restart", release }));
type MeddlingStep = Meddling & { readonly meddles: true };

inNetns(import.meta.url, { name: "nfthist", timeoutMs: 300_000 }, () => {
  describe("random histories on the real kernel", () => {
    let ruleset: NetlinkRuleset;
    before(() => {
      ruleset = openNetlinkRuleset();
    });
    after(() => ruleset.close());

    for (const { layout, family, nft } of VARIANTS) {
      async function assertAsFromNothing(history: NftablesHistory): Promise<void> {
        const connect = () => ruleset.open({ family: nft, table: FRESH });
        const { driver, node } = history.rig;
        const fresh = new BackendRig(driver, { layout, family, connect, release: history.rig.release });
        Object.assign(fresh.node, node);
        assert.deepEqual((await driver.syncOther(fresh.backend)).failures, []);
        fresh.close();
        const { found, fresh: wanted } = listed();
        // assert truncates the diff of long texts: print the lines that only one of them has.
        const [ours, theirs] = [found.split("\n"), wanted.split("\n")];
        const surplus = ours.filter((line) => !theirs.includes(line)).slice(0, 20);
        const missing = theirs.filter((line) => !ours.includes(line)).slice(0, 20);
        assert.ok(found === wanted, JSON.stringify({ surplus, missing }, undefined, 1));
        await connect().transact([{ kind: "delete-table" }]);
      }

      test(`${layout}, ${family}: every sync leaves what a full sync from nothing leaves`, async () => {
        const happening: fc.Arbitrary<Happening> = fc.oneof(
          { weight: 15, arbitrary: stepArbitrary(family) },
          { weight: 1, arbitrary: restart },
        );
        await fc.assert(
          fc.asyncProperty(fc.array(happening, LONG), async (happenings) => {
            execFileSync("nft", ["flush ruleset"]);
            const history = new NftablesHistory(family, {
              layout,
              connect: () => ruleset.open({ family: nft, table: TABLE }),
              portsAtOnce: 2,
            });
            try {
              for (const step of [...happenings, { kind: "sync", isFullSync: false } as const]) {
                if (step.kind === "restart") {
                  history.rig.release = step.release;
                  history.rig.restart();
                } else if (step.kind !== "sync") history.apply(step);
                else {
                  assert.deepEqual((await history.sync(step.isFullSync)).failures, []);
                  await assertAsFromNothing(history);
                }
              }
              assert.deepEqual(history.rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
              assert.deepEqual(history.rig.lost, [], "our own commits were taken for another program's");
            } finally {
              history.rig.close();
            }
          }),
          { numRuns: RUNS, endOnFailure: true },
        );
      });

      test(`${layout}, ${family}: what another program does to the table is undone by the end of the period`, async () => {
        const happening: fc.Arbitrary<Happening | MeddlingStep> = fc.oneof(
          { weight: 8, arbitrary: stepArbitrary(family) },
          { weight: 6, arbitrary: meddlingArbitrary.map((one): MeddlingStep => ({ ...one, meddles: true })) },
          { weight: 1, arbitrary: restart },
        );
        const table = `${nft} ${TABLE}`;
        await fc.assert(
          fc.asyncProperty(fc.array(happening, LONG), async (happenings) => {
            execFileSync("nft", ["flush ruleset"]);
            const connect = () => ruleset.open({ family: nft, table: TABLE });
            const history = new NftablesHistory(family, { layout, connect });
            try {
              await history.sync(true);
              for (const step of [...happenings, { kind: "sync", isFullSync: false } as const]) {
                if ("meddles" in step) meddle(table, step);
                else if (step.kind === "restart") {
                  history.rig.release = step.release;
                  history.rig.restart();
                } else if (step.kind !== "sync") history.apply(step);
                else {
                  await history.sync(step.isFullSync);
                  await history.rig.endPeriod();
                  assert.deepEqual((await history.sync(false)).failures, []);
                  removeTraces(table);
                  await assertAsFromNothing(history);
                }
              }
            } finally {
              history.rig.close();
            }
          }),
          { numRuns: RUNS, endOnFailure: true },
        );
      });
    }
  });
});
