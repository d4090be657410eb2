/**
 * Random histories on the real kernel, both back ends: what the host's tools hold after every sync is what one full sync
 * leaves in the in-memory kernel. `KPTS_PROPERTY_KERNEL_RUNS` sets how many histories are tried per back end.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createIptables } from "../../src/kernel/iptables/exec-iptables.ts";
import { binariesOf } from "../../src/kernel/iptables/testing/binaries.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { netnsFor, netnsSkip } from "../../testkit/support/netns.ts";
import { stepArbitrary } from "./cluster-arbitrary.ts";
import { ClusterHistory, type HistoryOptions } from "./cluster-history.ts";
import { ruleDifferences } from "./comparable-rules.ts";

const RUNS = historyRuns("KPTS_PROPERTY_KERNEL_RUNS", 8);

const KINDS = [
  { family: "IPv4", backEnd: "nft" },
  { family: "IPv4", backEnd: "legacy" },
  { family: "IPv6", backEnd: "nft" },
] as const;

describe("random histories on the real kernel", { concurrency: 2, skip: netnsSkip }, () => {
  for (const { family, backEnd } of KINDS) {
    test(`${family}, ${backEnd}: every sync leaves what a full sync from nothing leaves`, async (t) => {
      const { exec } = await netnsFor(t, "hist");
      const tools = { family, exec, log: silentLogger, binaries: binariesOf(family, backEnd) };
      const options: HistoryOptions = {
        family,
        detector: "cidr",
        masqueradeAll: false,
        localhostNodePorts: true,
        hasCounters: false,
        largeClusterEndpoints: undefined,
        portsPerTransaction: 2,
      };
      const iptables = await createIptables(tools);
      await fc.assert(
        fc.asyncProperty(fc.array(stepArbitrary(family), { maxLength: 16, size: "max" }), async (steps) => {
          const emptied = await exec(tools.binaries.restore, [], { stdin: ["*filter\nCOMMIT\n*nat\nCOMMIT\n"] });
          assert.equal(emptied.status, 0, emptied.stderr);
          const history = new ClusterHistory(options, iptables);
          for (const step of [...steps, { kind: "sync", isFullSync: false } as const]) {
            if (step.kind !== "sync") {
              history.apply(step);
              continue;
            }
            assert.deepEqual((await history.sync(step.isFullSync)).failures, []);
            const { kernel: wanted } = await history.fromScratch();
            for (const table of ["filter", "nat"] as const) {
              const found = ruleDifferences(await iptables.save(table), wanted.dump(table));
              assert.equal(found.join("\n\n"), "", table);
            }
          }
          assert.equal(history.restoreFailures, 0);
        }),
        { numRuns: RUNS, endOnFailure: true },
      );
    });
  }
});
