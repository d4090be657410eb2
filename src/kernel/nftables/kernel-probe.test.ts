import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../test/support/in-netns.ts";
import { probeKernel } from "./kernel-probe.ts";
import { openNetlinkRuleset } from "./netlink-nftables.ts";
import { NftError, type NftOperation } from "./nftables.ts";
import type { NftStatement } from "./ruleset.ts";

/** A kernel that refuses the first operation for which `isMissing` holds. */
function lacking(code: NftError["code"], isMissing: (operation: NftOperation) => boolean) {
  return {
    check: async (_name: unknown, operations: readonly NftOperation[]) => {
      const index = operations.findIndex(isMissing);
      assert.ok(index >= 0, "the probe does not ask for it");
      throw new NftError(code, "what the kernel said", index);
    },
  };
}

function has(kind: NftStatement["kind"]): (operation: NftOperation) => boolean {
  return (operation) => operation.kind === "add-rule" && operation.rule.statements.some((one) => one.kind === kind);
}

test("what is missing is named with the module that brings it, for everything that rules consist of", async () => {
  const kinds = ["random-vmap", "fib-local", "reject", "masquerade", "dnat", "random-dnat", "update", "ct-new", "vmap"];
  for (const kind of kinds as NftStatement["kind"][]) {
    await assert.rejects(probeKernel(lacking("unsupported", has(kind)), "ip6"), (error) => {
      assert.ok(error instanceof NftError);
      assert.equal(error.code, "unsupported");
      assert.match(
        error.message,
        /^the kernel refuses .* for family ip6 \(is the module nf\S* there\?\): what the kernel/,
      );
      return true;
    });
  }
  const isNatChain = (operation: NftOperation) =>
    operation.kind === "add-chain" && operation.chain.hook?.type === "nat";
  await assert.rejects(
    probeKernel(lacking("not_found", isNatChain), "ip"),
    /chains of type nat .* nft_chain_nat there/,
  );
  await assert.rejects(probeKernel(lacking("unsupported", has("fib-local")), "ip"), /nft_fib_ipv4/);
});

test("a refusal as a whole is passed on as it is", async () => {
  const denied = new NftError("denied", "no CAP_NET_ADMIN", undefined);
  await assert.rejects(probeKernel({ check: () => Promise.reject(denied) }, "ip"), denied);
});

inNetns(import.meta.url, { name: "nftprobe" }, () => {
  test("this kernel has everything, and nothing stays of having asked", async (t) => {
    const ruleset = openNetlinkRuleset();
    t.after(() => ruleset.close());
    for (const family of ["ip", "ip6"] as const) await probeKernel(ruleset, family);
    assert.equal(execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" }), "");
  });
});
