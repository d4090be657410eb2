import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkError } from "../netlink/errors.ts";
import { fromNetlinkError, fromRefusal } from "./netlink-errors.ts";
import { encodeTransaction } from "./netlink-transaction.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftOperation } from "./nftables.ts";

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

/** The kernel rejects a message. @param offset of the attribute in it that the kernel names. */
async function refusal(index: number, errno: `E${string}`, offset?: number) {
  const transaction = await encodeTransaction({ layout: LAYOUTS.ip, table: "t" }, OPERATIONS);
  const { messages } = transaction.batch;
  if (index >= messages.count) transaction.batch.finish();
  const request = { index, type: messages.typeOf(index), sequence: 0 };
  const errors = [new NetlinkError(errno, errno, { request, offset })];
  return fromRefusal({ committed: false, isTruncated: false, errors }, transaction);
}

test("a refused message is traced to its operation", async () => {
  // The batch starts with a marker.
  const operations = await Promise.all(
    [0, 1, 2, 3, 4, 5, 6, 7].map(async (n) => (await refusal(n, "EBUSY")).operation),
  );
  assert.deepEqual(operations, [undefined, 0, 1, 2, 2, 2, 3, undefined]);
  const { message } = await refusal(4, "EBUSY");
  assert.equal(message, "nf_tables: add element: table t: EBUSY", "an anonymous map has no name");
});

test("an expression that the kernel does not have is unsupported, one that names what is missing is not found", async () => {
  const found = new Map<string, string>();
  for (let offset = 0; offset < 200; offset += 4) {
    const { code, message } = await refusal(5, "ENOENT", offset);
    const [, what = ""] = /^nf_tables: add rule ?(.*): chain c, table t: ENOENT/.exec(message) ?? assert.fail(message);
    found.set(what.replace(/__.*/, "__map"), code);
    assert.equal(/; the kernel lacks it: a module or a newer kernel is needed$/.test(message), code === "unsupported");
  }
  assert.deepEqual(Object.fromEntries(found), {
    "": "not_found",
    "with expression numgen": "unsupported",
    "with set __map": "not_found",
  });
});

test("errors of the socket have the contract's codes", () => {
  const codeOf = (code: NetlinkError["code"]) => fromNetlinkError(new NetlinkError(code, "text")).code;
  assert.equal(codeOf("EPERM"), "denied");
  assert.equal(codeOf("too_large"), "too_large");
  assert.equal(codeOf("ENOBUFS"), "failed");
  assert.equal(fromNetlinkError("odd").code, "failed");
});
