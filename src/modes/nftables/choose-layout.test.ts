import assert from "node:assert/strict";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { openNetlinkRuleset } from "../../kernel/nftables/netlink-nftables.ts";
import { NftError, type NftOperation } from "../../kernel/nftables/nftables.ts";
import { silentLogger } from "../../logging/logger.ts";
import { chooseLayout } from "./runtime.ts";

test("a kernel without a part of the flat layout runs the compatible one, and the part is named", async () => {
  const errors: unknown[] = [];
  const log = { ...silentLogger, error: (_message: string, error: unknown) => void errors.push(error) };
  const ruleset = {
    async check(_name: unknown, operations: Iterable<NftOperation>) {
      const index = [...operations].findIndex((one) => one.kind === "add-set" && one.set.slots !== undefined);
      throw new NftError("unsupported", "Operation not supported", index);
    },
  };
  assert.equal(await chooseLayout("Flat", { ruleset, family: "ip", log }), "Compatible");
  assert.match(String(errors[0]), /maps to addresses and ports.*nf_tables/);
  assert.equal(await chooseLayout("Compatible", { ruleset, family: "ip", log }), "Compatible");
  assert.equal(errors.length, 1);
});

inNetns(import.meta.url, { name: "nftlayout" }, () => {
  test("this kernel has all of it", async (t) => {
    const ruleset = openNetlinkRuleset();
    t.after(() => ruleset.close());
    for (const family of ["ip", "ip6"] as const) {
      assert.equal(await chooseLayout("Flat", { ruleset, family, log: silentLogger }), "Flat");
    }
  });
});
