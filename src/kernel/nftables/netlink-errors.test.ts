import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkError } from "../netlink/errors.ts";
import { fromNetlinkError, fromRefusal } from "./netlink-errors.ts";
import { encodeTransaction } from "./netlink-transaction.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftOperation } from "./nftables.ts";
import type { NftExpression } from "./wire/expressions.ts";

const OPERATIONS: readonly NftOperation[] = [
  { kind: "add-table", comment: "" },
  { kind: "add-chain", chain: { name: "c" } },
  {
    kind: "add-rule",
    chain: "c",
    // Three messages: the map, its elements, the rule.
    rule: { statements: [{ kind: "random-vmap", verdicts: [{ kind: "drop" }] }] },
  },
  { kind: "delete-chain", chain: "c" },
];

async function refusal(message: number, errno: `E${string}`, expression?: NftExpression) {
  const transaction = await encodeTransaction({ layout: LAYOUTS.ip, table: "t" }, OPERATIONS);
  const error = new NetlinkError(errno, errno, { request: { index: message, type: 0, sequence: 0 } });
  return fromRefusal(
    {
      committed: false,
      isStale: false,
      isTruncated: false,
      failures: [{ error, verb: "add", kind: "rule", message: "nf_tables: add rule", expression }],
    },
    transaction,
  );
}

test("a refused message is traced to its operation", async () => {
  // The batch starts with a marker.
  const operations = await Promise.all(
    [0, 1, 2, 3, 4, 5, 6, 7].map(async (n) => (await refusal(n, "EBUSY")).operation),
  );
  assert.deepEqual(operations, [undefined, 0, 1, 2, 2, 2, 3, undefined]);
});

test("an expression that the kernel does not have is unsupported, one that names what is missing is not found", async () => {
  const numgen: NftExpression = { kind: "numgen" };
  const lookup: NftExpression = { kind: "lookup", set: "gone" };
  const missing = await refusal(5, "ENOENT", numgen);
  assert.equal(missing.code, "unsupported");
  assert.match(missing.message, /the kernel lacks it: a module or a newer kernel is needed/);
  assert.equal((await refusal(5, "ENOENT", lookup)).code, "not_found");
  assert.equal((await refusal(2, "ENOENT")).code, "not_found");
});

test("errors of the socket have the contract's codes", () => {
  const codeOf = (code: NetlinkError["code"]) => fromNetlinkError(new NetlinkError(code, "text")).code;
  assert.equal(codeOf("EPERM"), "denied");
  assert.equal(codeOf("too_large"), "too_large");
  assert.equal(codeOf("ENOBUFS"), "failed");
  assert.equal(fromNetlinkError("odd").code, "failed");
});
