/**
 * Other programs' tables with features on which old versions of nft crash, so that every sync of a proxy that runs them
 * fails (kubernetes #136786, #140898, k0s #7293). Here they stand beside ours, and neither affects the other.
 */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { after, before, beforeEach, test } from "node:test";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../src/kernel/netlink/nfnetlink.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../../src/kernel/nftables/netlink-nftables.ts";
import { NftBatch } from "../../../src/kernel/nftables/wire/batch.ts";
import * as nft from "../../../src/kernel/nftables/wire/constants.ts";
import { hostU32 } from "../../../src/kernel/nftables/wire/data.ts";
import { type NftablesClient, openNftables } from "../../../src/kernel/nftables/wire/nftables-client.ts";
import { LAYOUT_NAMES } from "../../../src/modes/nftables/layout-name.ts";
import type { IpFamily } from "../../../src/net/ip.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { caseBackend, TABLE } from "../../conformance/case-backend.ts";
import { rawTable } from "../../conformance/raw-nftables.ts";

const NEWER = "newer";
const NFPROTO_INET = 1;
const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
const CASES = ["dual-stack", "session-affinity"];

/** User data: type, length, value, one after the other. */
function entry(type: number, ...values: readonly Uint8Array[]): Uint8Array {
  const value = Buffer.concat(values);
  return Buffer.concat([Uint8Array.of(type, value.length), value]);
}

/**
 * nft from 1.1.2 on writes `typeof` for keys that are not packet expressions. Number 4 is a plain value: versions
 * before 1.1.2 have no function that reads one, but call it all the same.
 */
const KEY_OF_NEWER_NFT = entry(3, entry(0, hostU32(4)), entry(1, entry(0, hostU32(1))));
/** Not from any version yet. */
const UNHEARD_OF = Buffer.concat([entry(200, Buffer.from("?")), entry(201), entry(255, Buffer.alloc(64, 0xff))]);

/** A raw attribute of an expression, as in netlink. */
function attribute(type: number, value: Uint8Array): Uint8Array {
  const head = Buffer.alloc(4);
  head.writeUInt16LE(value.length + 4);
  head.writeUInt16LE(type, 2);
  return Buffer.concat([head, value, Buffer.alloc((4 - (value.length % 4)) % 4)]);
}

function bigEndian(value: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Expressions that nft 1.0.6 does not know, with the kernel version that introduced them. */
const EXPRESSIONS = [
  { since: "5.14", name: "last", data: Buffer.alloc(0) },
  // `@r1 & @r2`: two registers, introduced long after one and a number.
  {
    since: "6.13",
    name: "bitwise",
    data: Buffer.concat(
      (
        [
          [1, 8],
          [8, 9],
          [2, 10],
          [3, 4],
          [6, 3],
        ] as const
      ).map(([type, value]) => attribute(type, bigEndian(value))),
    ),
  },
] as const;

inNetns(import.meta.url, { name: "newnft" }, () => {
  let client: NftablesClient;
  let ruleset: NetlinkRuleset;
  before(() => {
    client = openNftables();
    ruleset = openNetlinkRuleset();
  });
  after(async () => {
    await client.close();
    await ruleset.close();
  });

  async function remove(family: number, name: string): Promise<void> {
    if (!(await client.tables(family)).some((table) => table.name === name)) return;
    const batch = new NftBatch(family);
    batch.delete("table", { name });
    assert.deepEqual(await client.commit(batch), { committed: true });
  }
  const NFPROTOS = [NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_INET];
  // nft itself cannot do it here.
  beforeEach(async () => {
    for (const family of NFPROTOS) for (const name of [NEWER, TABLE]) await remove(family, name);
  });

  /** What newer and future versions of nft leave in a family. */
  async function leaveTable(family: number): Promise<void> {
    const batch = new NftBatch(family);
    batch.add("table", { name: NEWER, userdata: UNHEARD_OF });
    batch.add("chain", { table: NEWER, name: "input", userdata: UNHEARD_OF });
    batch.add("set", {
      table: NEWER,
      name: "interfaces",
      keyType: nft.NFT_TYPES.integer,
      keyLength: 4,
      userdata: Buffer.concat([KEY_OF_NEWER_NFT, UNHEARD_OF]),
    });
    batch.addElements(NEWER, "interfaces", [{ key: { value: hostU32(1) }, userdata: UNHEARD_OF }]);
    assert.deepEqual(await client.commit(batch), { committed: true });
    const committed = new Set<string>();
    for (const { name, data } of EXPRESSIONS) {
      const one = new NftBatch(family);
      // Registers are filled before they are read.
      const load = [8, 9].map((dreg) => ({ kind: "meta" as const, key: nft.NFT_META_MARK, dreg }));
      const expressions = [...load, { kind: "unknown" as const, name, data }];
      one.add("rule", { table: NEWER, chain: "input", userdata: UNHEARD_OF, expressions });
      // An older kernel lacks this expression: those it has are enough.
      if ((await client.commit(one)).committed) committed.add(name);
    }
    assert.ok(committed.has("last"), "the kernel took no rule");
  }

  const foreign = () => Promise.all(NFPROTOS.map((family) => rawTable(client, family, NEWER)));
  const own = () => Promise.all([NFPROTO_IPV4, NFPROTO_IPV6].map((family) => rawTable(client, family, TABLE)));

  test("nft dies of such tables, or is newer than all that does", async (t) => {
    for (const family of NFPROTOS) await leaveTable(family);
    const { status, signal } = spawnSync("nft", ["list", "ruleset"]);
    const version = execFileSync("nft", ["--version"], { encoding: "utf8" }).trim();
    t.diagnostic(`${version}: ${signal ?? `status ${status}`}`);
    if (/ v1\.0\.[0-6] /.test(version)) assert.equal(signal, "SIGSEGV");
  });

  for (const layout of LAYOUT_NAMES) {
    for (const name of CASES) {
      test(`${layout}, ${name}: the table is as without them, at the start, later, and after a restart`, async () => {
        const syncAll = async () => {
          for (const family of FAMILIES)
            assert.deepEqual((await caseBackend(name, family, ruleset, layout).sync()).failures, []);
        };
        await syncAll();
        const expected = await own();
        for (const family of [NFPROTO_IPV4, NFPROTO_IPV6]) await remove(family, TABLE);

        for (const family of NFPROTOS) await leaveTable(family);
        const before = await foreign();
        await syncAll();
        assert.deepEqual(await own(), expected);
        const { id } = await client.generation();
        await syncAll();
        assert.equal((await client.generation()).id, id, "a restarted process wrote something");
        assert.deepEqual(await foreign(), before);
      });
    }
  }
});
