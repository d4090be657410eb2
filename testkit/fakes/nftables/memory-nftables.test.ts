import assert from "node:assert/strict";
import { test } from "node:test";
import { NftError, type NftOperation } from "../../../src/kernel/nftables/nftables.ts";
import type { NftSet } from "../../../src/kernel/nftables/ruleset.ts";
import { comparisonContract } from "../../../src/kernel/nftables/testing/comparison-contract.ts";
import { foreignInMemory } from "../../../src/kernel/nftables/testing/foreign-hand.ts";
import { nftablesContract } from "../../../src/kernel/nftables/testing/nftables-contract.ts";
import type { NftablesSubject } from "../../../src/kernel/nftables/testing/nftables-subject.ts";
import { targetMapContract } from "../../../src/kernel/nftables/testing/target-map-contract.ts";
import { MemoryNftKernel } from "./memory-nftables.ts";

const SUBJECT: NftablesSubject = {
  name: "in memory",
  skip: false,
  open: async () => {
    const kernel = new MemoryNftKernel("ip");
    const another = kernel.connectAnother();
    return {
      nft: kernel.connect(),
      foreign: async (command) =>
        command.kind === "rename-chain"
          ? kernel.renameChain(command.chain, command.to)
          : await foreignInMemory(another, command),
    };
  },
};
nftablesContract(SUBJECT);
targetMapContract(SUBJECT);
comparisonContract(SUBJECT);

const VERDICTS: NftSet = { name: "verdicts", key: ["port"], isMap: true };
const TABLE: NftOperation = { kind: "add-table", comment: "" };
const CHAIN: NftOperation = { kind: "add-chain", chain: { name: "a" } };

test("refuses what it is told to refuse, until told otherwise", async () => {
  const kernel = new MemoryNftKernel("ip");
  const nft = kernel.connect();
  await nft.transact([TABLE]);
  const allow = kernel.refuse((operation) => (operation.kind === "add-chain" ? { code: "unsupported" } : undefined));
  await assert.rejects(nft.transact([{ kind: "add-set", set: VERDICTS }, CHAIN]), {
    code: "unsupported",
    operation: 1,
  });
  assert.equal((await nft.read())?.sets.size, 0);
  allow();
  await nft.transact([CHAIN]);
  assert.equal(kernel.refusals, 1);
});

test("a refusal need not name the operation", async () => {
  const kernel = new MemoryNftKernel("ip");
  kernel.refuse(() => ({ code: "too_large", isNamed: false }));
  await assert.rejects(kernel.connect().transact([TABLE]), { code: "too_large", operation: undefined });
});

test("another program can change the table just after it was read", async () => {
  const kernel = new MemoryNftKernel("ip");
  const nft = kernel.connect();
  await nft.transact([TABLE]);
  kernel.afterNextRead(() => kernel.connectAnother().transact([CHAIN]));
  const content = await nft.read();
  assert.equal(content?.chains.size, 0);
  await assert.rejects(nft.transact([CHAIN], { generation: content?.generation ?? 0 }), { code: "conflict" });
  assert.equal((await nft.read())?.chains.size, 1);
});

test("fails once for each error that it was given", async () => {
  const kernel = new MemoryNftKernel("ip");
  const nft = kernel.connect();
  kernel.failOnce(new NftError("denied", "one", undefined));
  kernel.failOnce(new Error("two"));
  await assert.rejects(nft.transact([TABLE]), { code: "denied" });
  await assert.rejects(nft.transact([TABLE]), { message: "two" });
  await nft.transact([TABLE]);
  assert.deepEqual(kernel.takeOperations(), [TABLE]);
  assert.deepEqual(kernel.takeOperations(), []);
});

test("watching ends with the error that it was given", async () => {
  const kernel = new MemoryNftKernel("ip");
  const watching = kernel.connect().watch(() => {}, new AbortController().signal);
  kernel.failWatching(new Error("no more notifications"));
  await assert.rejects(watching, { message: "no more notifications" });
});

test("as an old kernel, it holds chains of deleted elements for a while", async () => {
  const kernel = new MemoryNftKernel("ip", { releasesLate: true });
  const nft = kernel.connect();
  const elements = [{ key: [1], verdict: { kind: "goto", chain: "a" } }] as const;
  await nft.transact([
    TABLE,
    { kind: "add-set", set: VERDICTS },
    CHAIN,
    { kind: "add-elements", set: VERDICTS, elements },
  ]);
  const deletion: NftOperation = { kind: "delete-elements", set: VERDICTS, keys: [[1]] };
  const gone: NftOperation = { kind: "delete-chain", chain: "a" };
  await assert.rejects(nft.transact([deletion, gone]), { code: "busy", operation: 1 });
  await nft.transact([deletion]);
  await assert.rejects(nft.transact([gone]), { code: "busy", operation: 0 });
  kernel.passTime();
  await nft.transact([gone]);
});

test("entries that packets made survive their set being added again, and go with it", async () => {
  const kernel = new MemoryNftKernel("ip");
  const nft = kernel.connect();
  const set: NftSet = { name: "affinity-x", key: ["address"], isMap: false, timeoutSeconds: 5 };
  await nft.transact([TABLE, { kind: "add-set", set }]);
  kernel.putPacketEntry(set.name, "192.0.2.1");
  await nft.transact([{ kind: "add-set", set: { ...set, timeoutSeconds: 6 } }]);
  assert.deepEqual(kernel.packetEntries(set.name), ["192.0.2.1"]);
  await nft.transact([{ kind: "delete-set", set: set.name }]);
  assert.equal(kernel.packetEntries(set.name), undefined);
});
