import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, beforeEach, describe, test } from "node:test";
import { inNetns } from "../../../../testkit/support/in-netns.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../netlink/nfnetlink.ts";
import type { BatchResult } from "../../netlink/socket.ts";
import { concat } from "../testing/registers.ts";
import { setCommentOf } from "../testing/set-comment.ts";
import { NftBatch } from "./batch.ts";
import * as nft from "./constants.ts";
import { hostU32, netU16 } from "./data.ts";
import type { NftExpression } from "./expressions.ts";
import { explainFailure } from "./failure.ts";
import { type NftablesClient, openNftables } from "./nftables-client.ts";
import { commentOf, commentUserdata, setUserdata } from "./userdata.ts";

const TABLE = "kube-proxy";
const ADDRESS_PROTOCOL_PORT = nft.concatType([
  nft.NFT_TYPES.ipv4_addr,
  nft.NFT_TYPES.inet_proto,
  nft.NFT_TYPES.inet_service,
]);
const list = (): string => execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });

function verdict(code: number, chain?: string): NftExpression {
  return { kind: "immediate", dreg: nft.NFT_REG_VERDICT, data: { verdict: { code, chain } } };
}

/** A table with a base chain, a verdict map with an element, and a rule that balances between two endpoints. */
function fillExample(batch: NftBatch): void {
  batch.add("table", { name: TABLE, userdata: commentUserdata("rules for kube-proxy") });
  batch.add("chain", { table: TABLE, name: "service" });
  batch.add("chain", {
    table: TABLE,
    name: "nat-prerouting",
    type: "nat",
    hook: { hooknum: nft.NF_INET_HOOKS.prerouting, priority: -100 },
  });
  batch.add("set", {
    table: TABLE,
    name: "service-ips",
    flags: nft.NFT_SET_MAP,
    keyType: ADDRESS_PROTOCOL_PORT,
    keyLength: 12,
    dataType: nft.NFT_TYPES.verdict,
    userdata: setUserdata({ keyByteOrder: "none", dataByteOrder: "none", comment: "ClusterIP traffic" }),
  });
  const key = concat(Uint8Array.of(172, 30, 0, 44), Uint8Array.of(6), netU16(80));
  batch.addElements(TABLE, "service-ips", [
    { key: { value: key }, data: { verdict: { code: nft.NFT_GOTO, chain: "service" } } },
  ]);
  batch.add("rule", {
    table: TABLE,
    chain: "nat-prerouting",
    expressions: [
      { kind: "payload", dreg: 1, base: nft.NFT_PAYLOAD_NETWORK_HEADER, offset: 16, len: 4 },
      { kind: "meta", key: nft.NFT_META_L4PROTO, dreg: 9 },
      { kind: "payload", dreg: 10, base: nft.NFT_PAYLOAD_TRANSPORT_HEADER, offset: 2, len: 2 },
      { kind: "lookup", set: "service-ips", sreg: 1, dreg: nft.NFT_REG_VERDICT },
    ],
  });
  const setId = batch.takeSetId();
  batch.add("set", {
    table: TABLE,
    name: "__map%d",
    flags: nft.NFT_SET_ANONYMOUS | nft.NFT_SET_CONSTANT | nft.NFT_SET_MAP,
    keyType: nft.NFT_TYPES.integer,
    keyLength: 4,
    dataType: nft.concatType([nft.NFT_TYPES.ipv4_addr, nft.NFT_TYPES.inet_service]),
    dataLength: 8,
    id: setId,
    userdata: setUserdata({ keyByteOrder: "host" }),
  });
  const endpoints = [4, 5].map((last, index) => ({
    key: { value: hostU32(index) },
    data: { value: concat(Uint8Array.of(10, 180, 0, last), netU16(8080)) },
  }));
  batch.addElements(TABLE, { set: "__map%d", setId }, endpoints);
  batch.add("rule", {
    table: TABLE,
    chain: "service",
    userdata: commentUserdata("balance"),
    expressions: [
      { kind: "meta", key: nft.NFT_META_L4PROTO, dreg: 1 },
      { kind: "cmp", sreg: 1, op: nft.NFT_CMP_EQ, data: { value: Uint8Array.of(6) } },
      { kind: "numgen", dreg: 1, modulus: 2, type: nft.NFT_NG_RANDOM, offset: 0 },
      { kind: "lookup", set: "__map%d", sreg: 1, dreg: 1, setId },
      { kind: "nat", type: nft.NFT_NAT_DNAT, family: NFPROTO_IPV4, regAddrMin: 1, regProtoMin: 9 },
    ],
  });
}

function example(): NftBatch {
  const batch = new NftBatch(NFPROTO_IPV4);
  fillExample(batch);
  return batch;
}

/** What is said about each refusal. */
function refused({ messages }: NftBatch, result: BatchResult): string[] {
  assert.ok(!result.committed, "the batch should have been refused");
  return result.errors.map((error) => explainFailure(messages, error).message);
}

inNetns(import.meta.url, { name: "nftclient" }, () => {
  let client: NftablesClient;
  before(() => {
    client = openNftables();
  });
  after(() => client.close());
  beforeEach(() => execFileSync("nft", ["flush", "ruleset"]));

  describe("commits", () => {
    test("nft lists what was committed as if it had made it itself", async () => {
      assert.deepEqual(await client.commit(example()), { committed: true });
      const lines = list()
        .split("\n")
        .map((line) => line.trim())
        .filter((line) => line !== "" && line !== "}");
      assert.deepEqual(lines, [
        "table ip kube-proxy {",
        'comment "rules for kube-proxy"',
        "map service-ips {",
        "type ipv4_addr . inet_proto . inet_service : verdict",
        'comment "ClusterIP traffic"',
        "elements = { 172.30.0.44 . tcp . 80 : goto service }",
        "chain service {",
        'meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.180.0.4 . 8080, 1 : 10.180.0.5 . 8080 } comment "balance"',
        "chain nat-prerouting {",
        "type nat hook prerouting priority dstnat; policy accept;",
        "ip daddr . meta l4proto . th dport vmap @service-ips",
      ]);
    });

    test("the same batch twice only repeats the rules", async () => {
      await client.commit(example());
      assert.deepEqual(await client.commit(example()), { committed: true });
      assert.equal((await client.rules(NFPROTO_IPV4, TABLE, "service")).length, 2);
    });

    test("a check says what a commit would, and changes nothing", async () => {
      assert.deepEqual(await client.check(example()), { committed: true });
      assert.equal(list(), "");
      const bad = example();
      bad.delete("chain", { table: TABLE, name: "never-was" });
      assert.match(refused(bad, await client.check(bad))[0] ?? "", /delete chain: chain never-was/);
      bad.finish();
      assert.throws(() => client.check(bad), /would be applied/);
    });

    test("an empty batch is not sent", async () => {
      const { id } = await client.generation();
      assert.deepEqual(await client.commit(new NftBatch(NFPROTO_IPV4)), { committed: true });
      assert.equal((await client.generation()).id, id);
    });

    test("a batch planned for an older generation is refused as stale", async () => {
      const { id = 0 } = await client.generation();
      execFileSync("nft", ["add", "table", "ip", "foreign"]);
      const batch = new NftBatch(NFPROTO_IPV4, { generation: id });
      fillExample(batch);
      assert.match(refused(batch, await client.commit(batch)).join(), /ERESTART/);
      const current = new NftBatch(NFPROTO_IPV4, { generation: (await client.generation()).id ?? 0 });
      fillExample(current);
      assert.deepEqual(await client.commit(current), { committed: true });
    });

    test("every refused operation is named: table, chain, rule, set", async () => {
      const batch = example();
      batch.add("rule", { table: TABLE, chain: "service", expressions: [verdict(nft.NFT_GOTO, "nowhere")] });
      batch.delete("chain", { table: TABLE, name: "never-was" });
      batch.delete("set", { table: TABLE, name: "no-set" });
      batch.create("table", { name: TABLE });
      assert.deepEqual(refused(batch, await client.commit(batch)), [
        "nf_tables: add rule to chain nowhere: chain service, table kube-proxy: ENOENT",
        "nf_tables: delete chain: chain never-was, table kube-proxy: ENOENT",
        "nf_tables: delete set: set no-set, table kube-proxy: ENOENT",
        "nf_tables: add table: table kube-proxy: EEXIST",
      ]);
      assert.equal(list(), "");
    });

    test("the refused element is found among many", async () => {
      await client.commit(example());
      const batch = new NftBatch(NFPROTO_IPV4);
      const keys = Array.from({ length: 500 }, (_, n) =>
        concat(Uint8Array.of(10, 0, n >> 8, n & 255), Uint8Array.of(6), netU16(80)),
      );
      batch.addElements(
        TABLE,
        "service-ips",
        keys.map((key, n) => ({
          key: { value: key },
          data: { verdict: { code: nft.NFT_GOTO, chain: n === 300 ? "nowhere" : "service" } },
        })),
      );
      const failures = refused(batch, await client.commit(batch));
      assert.equal(failures.length, 1);
      assert.match(failures[0] ?? "", /add element with key 0a00012c0600000000500000: set service-ips/);
    });
  });

  describe("reading back", () => {
    test("tables, chains, sets and elements of the asked table only", async () => {
      execFileSync("nft", ["add", "table", "ip", "foreign"]);
      execFileSync("nft", ["add", "chain", "ip", "foreign", "c"]);
      await client.commit(example());
      const tables = await client.tables(NFPROTO_IPV4);
      assert.deepEqual(
        tables.map(({ name, userdata }) => [name, commentOf(userdata)]),
        [
          ["foreign", undefined],
          [TABLE, "rules for kube-proxy"],
        ],
      );
      const chains = await client.chains(NFPROTO_IPV4, TABLE);
      assert.deepEqual(
        chains.map(({ name, type, hook }) => [name, type, hook?.priority]),
        [
          ["service", undefined, undefined],
          ["nat-prerouting", "nat", -100],
        ],
      );
      const sets = await client.sets(NFPROTO_IPV4, TABLE);
      const named = sets.filter(({ flags = 0 }) => (flags & nft.NFT_SET_ANONYMOUS) === 0);
      assert.deepEqual(
        named.map(({ name, userdata }) => [name, setCommentOf(userdata)]),
        [["service-ips", "ClusterIP traffic"]],
      );
      const [element, ...more] = await client.elements(NFPROTO_IPV4, TABLE, "service-ips");
      assert.deepEqual(element?.data?.verdict, { code: nft.NFT_GOTO, chain: "service" });
      assert.deepEqual(more, []);
    });

    test("an empty set has no elements, a missing one is an error", async () => {
      execFileSync("nft", ["add", "table", "ip", "t"]);
      execFileSync("nft", ["add", "set", "ip", "t", "s", "{ type ipv4_addr ; }"]);
      assert.deepEqual(await client.elements(NFPROTO_IPV4, "t", "s"), []);
      await assert.rejects(client.elements(NFPROTO_IPV4, "t", "none"), { code: "ENOENT" });
    });

    test("a family without tables is empty", async () => {
      assert.deepEqual(await client.tables(NFPROTO_IPV6), []);
    });

    test("the generation counts commits and names who made the last", async () => {
      const first = await client.generation();
      await client.commit(example());
      const second = await client.generation();
      assert.equal(second.id, (first.id ?? 0) + 1);
      assert.equal(second.processId, process.pid);
    });
  });
});
