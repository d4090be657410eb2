/** Reading a table while other programs change theirs, without a kernel. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isInterrupted } from "../netlink/errors.ts";
import { type TableClient, TableReader } from "./netlink-content.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftSet } from "./ruleset.ts";
import { NFT_TYPES } from "./wire/constants.ts";

const TABLE = "kube-proxy";

/** A fake kernel whose table has these chains, each with one rule. Its n-th list of chains is the n-th of `lists`. */
function kernel(chains: readonly string[], ...lists: readonly (readonly string[])[]): TableClient {
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
    rules: async () => [],
    counters: async () => [],
    ask: async () => {},
    check: async () => ({ committed: true }),
  };
}

test("what one list of chains passes over is taken from the next, and a table with gaps is none", async () => {
  const all = ["a", "b", "c"];
  for (const lists of [[all], [["a", "b"], ["c"]], [["c"], ["a"], ["a", "b"]]]) {
    const content = await new TableReader(kernel(all, ...lists), TABLE, LAYOUTS.ip).read();
    assert.deepEqual(
      [...(content?.chains ?? [])].map(([name, { ruleDigests }]) => [name, ruleDigests.length]).toSorted(),
      [
        ["a", 1],
        ["b", 1],
        ["c", 1],
      ],
    );
  }
  await assert.rejects(new TableReader(kernel(all, ["a", "b"]), TABLE, LAYOUTS.ip).read(), isInterrupted);
});

test("a large set of which some elements are missing is not listed, one with others beside is", async () => {
  const ports = Array.from({ length: 3000 }, (_, index) => index + 1);
  const set: NftSet = { name: "ports", key: ["port"], isMap: false };
  const listedOf = async (present: number): Promise<number> => {
    let listed = 0;
    const reader: TableClient = {
      ...kernel([], []),
      setHeads: async () => [
        { name: "ports", keyType: NFT_TYPES.inet_service, keyLength: 2, elementCount: present, flags: 0 },
      ],
      elements: async () => {
        listed += 1;
        return [];
      },
      ask: async (query, onAnswer) => {
        for (let index = 0; index < query.size; index++) onAnswer(index, index === 0 ? "missing" : "as expected");
      },
    };
    const content = await new TableReader(reader, TABLE, LAYOUTS.ip).read({
      sets: new Map([["ports", set]]),
      elements: () => ports.map((port) => ({ set: "ports", element: { key: [port] } })),
    });
    // One for each batch of 512 queries.
    if (listed === 0) assert.equal(content?.sets.get("ports")?.others?.size, 6);
    return listed;
  };
  assert.equal(await listedOf(ports.length - 6), 0);
  assert.equal(await listedOf(ports.length - 5), 1);
});
