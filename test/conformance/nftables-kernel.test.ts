/**
 * Every case through the backend into the kernel, over netlink: the kernel's state then equals, byte for byte, the
 * state after `nft` loads upstream's ruleset, and `nft` prints what it printed for upstream.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../src/kernel/nftables/netlink-nftables.ts";
import { LAYOUTS } from "../../src/kernel/nftables/netlink-values.ts";
import { type NftablesClient, openNftables } from "../../src/kernel/nftables/wire/nftables-client.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { canonicalNftText } from "./canonical-nft-text.ts";
import { canonicalNftables } from "./canonical-nftables.ts";
import { caseBackend, TABLE } from "./case-backend.ts";
import { caseFile, caseNames } from "./conformance-case.ts";
import { rawTable } from "./raw-nftables.ts";

inNetns(import.meta.url, { name: "nftconf", timeoutMs: 180_000 }, () => {
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
  const flush = () => execFileSync("nft", ["flush", "ruleset"]);
  const raw = () => Promise.all([LAYOUTS.ip, LAYOUTS.ip6].map(({ nfproto }) => rawTable(client, nfproto, TABLE)));

  for (const name of caseNames()) {
    test(name, async () => {
      flush();
      execFileSync("nft", ["-f", "-"], { input: caseFile(name, "nftables/nft.txt") });
      const upstream = await raw();
      flush();
      const families: IpFamily[] = ["IPv4", "IPv6"];
      const backends = families.map((family) => caseBackend(name, family, ruleset));
      for (const { sync } of backends) assert.deepEqual((await sync()).failures, []);
      const ours = await raw();
      for (const [index, text] of ours.entries()) assert.equal(text, upstream[index]);
      const text = execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });
      assert.equal(canonicalNftText(text), canonicalNftText(caseFile(name, "nftables/nft.txt")));
      const json = execFileSync("nft", ["-j", "list", "ruleset"], { encoding: "utf8", maxBuffer: 2 ** 28 });
      const captured = JSON.parse(caseFile(name, "nftables/nft.json"));
      assert.equal(canonicalNftables(JSON.parse(json).nftables), canonicalNftables(captured.nftables));

      const { id } = await client.generation();
      for (const family of families) await caseBackend(name, family, ruleset).sync();
      assert.equal((await client.generation()).id, id, "a restarted process wrote something");
    });
  }

  test("a name of more than 128 bytes without endpoints costs no table in v1.36, where upstream writes none", async () => {
    flush();
    for (const family of ["IPv4", "IPv6"] as const) {
      const { failures } = await caseBackend("v1.36/long-names-no-endpoints", family, ruleset).sync();
      assert.deepEqual(failures, []);
    }
    const text = execFileSync("nft", ["list", "table", "ip", TABLE], { encoding: "utf8" });
    const names = [...text.matchAll(/ comment "(n[^"]{100,})"/g)].map(([, name = ""]) => name.length);
    assert.deepEqual([...new Set(names)].sort(), [128, 129, 143]);
  });
});
