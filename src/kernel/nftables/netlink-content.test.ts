/** Reading a table while others change theirs, without a kernel. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isInterrupted } from "../netlink/errors.ts";
import { readTable, type TableReader } from "./netlink-content.ts";
import { LAYOUTS } from "./netlink-values.ts";

const TABLE = "kube-proxy";

/** A kernel whose table has these chains, each with one rule, and of which the n-th list has these. */
function kernel(chains: readonly string[], ...lists: readonly (readonly string[])[]): TableReader {
  let listed = 0;
  return {
    tables: async () => [{ name: TABLE }],
    chainHeads: async () => {
      const list = lists[listed % lists.length] ?? [];
      listed += 1;
      return list.map((name) => ({ table: TABLE, name }));
    },
    ruleHeads: async () => chains.map((chain) => ({ table: TABLE, chain })),
    setHeads: async () => [],
    elements: async () => [],
    counters: async () => [],
    ask: async () => {},
    check: async () => ({ committed: true }),
  };
}

test("what one list of chains passes over is taken from the next, and a table with gaps is none", async () => {
  const all = ["a", "b", "c"];
  for (const lists of [[all], [["a", "b"], ["c"]], [["c"], ["a"], ["a", "b"]]]) {
    const content = await readTable(kernel(all, ...lists), TABLE, LAYOUTS.ip);
    assert.deepEqual(
      [...(content?.chains ?? [])].map(([name, { ruleDigests }]) => [name, ruleDigests.length]).toSorted(),
      [
        ["a", 1],
        ["b", 1],
        ["c", 1],
      ],
    );
  }
  await assert.rejects(readTable(kernel(all, ["a", "b"]), TABLE, LAYOUTS.ip), isInterrupted);
});
