import assert from "node:assert/strict";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { openNetlinkRuleset } from "../../kernel/nftables/netlink-nftables.ts";
import { NftError, type NftOperation } from "../../kernel/nftables/nftables.ts";
import { silentLogger } from "../../logging/logger.ts";
import { makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import { LAYOUTS } from "./layouts.ts";
import { NO_FACTS } from "./plan-options.ts";
import { canHash, chooseLayout } from "./runtime.ts";
import { CONFIGS } from "./testing/backend-rig.ts";

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

test("a kernel that cannot hash serves at random, and the log names the module", async () => {
  const warnings: unknown[] = [];
  const log = { ...silentLogger, warn: (...said: unknown[]) => void warnings.push(said) };
  const ruleset = {
    async check(_name: unknown, operations: Iterable<NftOperation>) {
      const index = [...operations].findIndex((one) => one.kind === "add-rule");
      throw new NftError("not_found", "No such file or directory", index);
    },
  };
  assert.equal(await canHash(ruleset, "ip", log), false);
  assert.match(JSON.stringify(warnings), /served at random.*nft_hash/);
  const port = makeServicePort();
  const endpoints = [makeEndpoint("10.0.0.1"), makeEndpoint("10.0.0.2")];
  const config = { ...CONFIGS.IPv4, lacksHash: true };
  for (const { planServicePort } of Object.values(LAYOUTS)) {
    const hashed = planServicePort({ ...port, balancing: "SourceHash" }, endpoints, config, NO_FACTS);
    assert.deepEqual(hashed, planServicePort(port, endpoints, config, NO_FACTS));
  }
});

inNetns(import.meta.url, { name: "nftlayout" }, () => {
  test("this kernel has all of it", async (t) => {
    const ruleset = openNetlinkRuleset();
    t.after(() => ruleset.close());
    for (const family of ["ip", "ip6"] as const) {
      assert.equal(await chooseLayout("Flat", { ruleset, family, log: silentLogger }), "Flat");
      assert.equal(await canHash(ruleset, family, silentLogger), true);
    }
  });
});
