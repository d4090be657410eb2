import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { probeKernel } from "./kernel-probe.ts";
import { fromRefusal } from "./netlink-errors.ts";
import { type NetlinkTableName, openNetlinkRuleset } from "./netlink-nftables.ts";
import { encodeTransaction } from "./netlink-transaction.ts";
import { LAYOUTS } from "./netlink-values.ts";
import { NftError, type NftOperation } from "./nftables.ts";
import type { NftStatement } from "./ruleset.ts";
import { openNftables } from "./wire/nftables-client.ts";

/** A kernel that rejects the first operation for which `isMissing` holds. */
function lacking(code: NftError["code"], isMissing: (operation: NftOperation) => boolean) {
  return {
    check: async (_name: unknown, operations: Iterable<NftOperation>) => {
      const index = [...operations].findIndex(isMissing);
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
        /^the kernel refuses .* for family ip6 \(is the module nf\S* loaded\?\): what the kernel/,
      );
      return true;
    });
  }
  const isNatChain = (operation: NftOperation) =>
    operation.kind === "add-chain" && operation.chain.hook?.type === "nat";
  await assert.rejects(
    probeKernel(lacking("not_found", isNatChain), "ip"),
    /chains of type nat .* nft_chain_nat loaded/,
  );
  await assert.rejects(probeKernel(lacking("unsupported", has("fib-local")), "ip"), /nft_fib_ipv4/);
});

test("a refusal as a whole is passed on as it is", async () => {
  const denied = new NftError("denied", "no CAP_NET_ADMIN", undefined);
  await assert.rejects(probeKernel({ check: () => Promise.reject(denied) }, "ip"), denied);
});

/** Changes the name of an expression everywhere in a batch, without changing its length. */
function misspell(bytes: Buffer, name: string): void {
  // The name follows the attribute type NFTA_EXPR_NAME (little-endian).
  const text = `\x01\0${name}\0`;
  for (let at = bytes.indexOf(text); at >= 0; at = bytes.indexOf(text, at + 1)) bytes[at + 2] = 0x7e;
}

inNetns(import.meta.url, { name: "nftprobe" }, () => {
  test("this kernel has everything, and nothing stays of having asked", async (t) => {
    const ruleset = openNetlinkRuleset();
    t.after(() => ruleset.close());
    for (const family of ["ip", "ip6"] as const) await probeKernel(ruleset, family);
    assert.equal(execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" }), "");
  });

  // This kernel has every expression, so ask for one under a name that it does not know.
  for (const [name, what] of [
    ["numgen", "random choice (numgen)"],
    ["fib", "address types (fib)"],
    ["masq", "masquerade"],
    ["reject", "reject"],
    ["dynset", "adding to sets from rules (dynset)"],
    ["nat", "address translation (nat)"],
  ] as const) {
    test(`a kernel without the expression ${name} is told by its answer`, async (t) => {
      const client = openNftables();
      t.after(() => client.close());
      const check = async ({ family, table }: NetlinkTableName, operations: Iterable<NftOperation>): Promise<void> => {
        const transaction = await encodeTransaction({ layout: LAYOUTS[family], table }, operations);
        misspell(transaction.batch.messages.bytes, name);
        const result = await client.check(transaction.batch);
        if (!result.committed) throw fromRefusal(result, transaction);
      };
      for (const family of ["ip", "ip6"] as const) {
        await assert.rejects(probeKernel({ check }, family), (error) => {
          assert.ok(error instanceof NftError);
          assert.equal(error.code, "unsupported");
          assert.ok(error.message.startsWith(`the kernel refuses ${what} for family ${family} (is the module nf`));
          assert.match(error.message, /the kernel lacks it: a module or a newer kernel is needed$/);
          return true;
        });
      }
    });
  }
});
