import assert from "node:assert/strict";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { execProcess } from "../process.ts";
import { chainsAtHand } from "./nft-chains.ts";
import { binariesOf } from "./testing/binaries.ts";

inNetns(import.meta.url, { name: "chains" }, () => {
  for (const family of ["IPv4", "IPv6"] as const) {
    test(`${family}: chains of the nft back end are told, those of other tables are not, and legacy tables only by their tool`, async () => {
      assert.deepEqual(await chainsAtHand(family), []);

      const { rule } = binariesOf(family, "nft");
      await execProcess(rule, ["-t", "nat", "-N", "KUBE-A"]);
      await execProcess(rule, ["-t", "mangle", "-N", "KUBE-B"]);
      await execProcess(rule, ["-t", "raw", "-N", "KUBE-C"]);
      const found = await chainsAtHand(family);
      const own = found?.filter(({ chain }) => chain.startsWith("KUBE-"));
      assert.deepEqual(
        new Set(own?.map(({ table, chain }) => `${table} ${chain}`)),
        new Set(["nat KUBE-A", "mangle KUBE-B"]),
      );

      await execProcess(binariesOf(family, "legacy").rule, ["-t", "filter", "-S"]);
      assert.equal(await chainsAtHand(family), undefined);
    });
  }
});
