/** One change runs as much code in a large cluster as in a small one, from the line of the watch to the bytes of the batch. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { encodeTransaction } from "../src/kernel/nftables/netlink-transaction.ts";
import { LAYOUTS } from "../src/kernel/nftables/netlink-values.ts";
import { LAYOUT_NAMES, type LayoutName } from "../src/modes/nftables/layout-name.ts";
import { TABLE } from "../src/modes/nftables/names.ts";
import { countVisits } from "../testkit/support/operation-counter.ts";
import { nftBackend } from "./backends.ts";
import { bottomless, ChangeCostSubject } from "./change-cost-subject.ts";

const SIZES = { small: 20, large: 1_500 } as const;

const KERNEL = bottomless(async (operations) => {
  const { batch } = await encodeTransaction({ layout: LAYOUTS.ip, table: TABLE }, operations);
  batch.finish();
  batch.messages.release();
});

async function visitsOf(services: number, layout: LayoutName) {
  const subject = new ChangeCostSubject(3, nftBackend(layout, KERNEL));
  await subject.load(services);
  const slice = subject.replacedEndpoint(7, 1);
  const added = subject.service(services, "ADDED");
  const deleted = subject.service(services, "DELETED");
  const inOneSync = (push: () => void): Promise<number> =>
    countVisits(async () => {
      const { synced } = subject;
      push();
      await synced;
    });
  try {
    // Leaves out the engine's own first-time work and caches of shared texts.
    await inOneSync(() => subject.pushSlice(subject.replacedEndpoint(5, 1)));
    const endpoint = await inOneSync(() => subject.pushSlice(slice));
    const addition = await inOneSync(() => {
      subject.pushSlice(added.slice);
      subject.pushService(added.service);
    });
    const removal = await inOneSync(() => {
      subject.pushSlice(deleted.slice);
      subject.pushService(deleted.service);
    });
    const scrape = await countVisits(async () => void (await subject.scrape()));
    return { endpoint, addition, removal, scrape };
  } finally {
    await subject.close();
  }
}

for (const layout of LAYOUT_NAMES) {
  test(`${layout}: nothing walks over the cluster for an endpoint, a new or a removed service, or a scrape`, async () => {
    const small = await visitsOf(SIZES.small, layout);
    const large = await visitsOf(SIZES.large, layout);
    // Event loop turns vary; so do the series in a scrape that depend on what the engine has done.
    const allowance = (what: string): number => (what === "scrape" ? 1_000 : 50);
    for (const [what, visits] of Object.entries(small)) {
      const inLarge = large[what as keyof typeof large]; // both have the same fields
      assert.ok(visits > 0, what);
      assert.ok(
        inLarge <= visits + allowance(what),
        `${what}: ${visits} visits in a small cluster, ${inLarge} in a large one`,
      );
    }
  });
}
