/** The nftables mode's flat layout on the real kernel: interference by other programs, a sudden end, and the other layout. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { beforeEach, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openNetlinkRuleset } from "../../../src/kernel/nftables/netlink-nftables.ts";
import { tableOf } from "../../../src/kernel/nftables/ruleset-table.ts";
import { tableText } from "../../../src/kernel/nftables/ruleset-text.ts";
import { ip } from "../../../src/model/testing/records.ts";
import { newModel, type TestModel } from "../../../src/modes/nftables/testing/backend-rig.ts";
import type { Cidr } from "../../../src/net/ip.ts";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { canonicalNftables } from "../../conformance/canonical-nftables.ts";

const KILLED = fileURLToPath(new URL("./killed-backend.ts", import.meta.url));
const TABLE = "ip kube-proxy";

function nft(commands: string): void {
  execFileSync("nft", ["-f", "-"], { input: `${commands}\n`, stdio: ["pipe", "ignore", "pipe"] });
}

function listed(): string {
  // nft 1.0.6 writes a line about what it cannot express in JSON.
  const text = execFileSync("nft", ["-j", "list", "ruleset"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return canonicalNftables(JSON.parse(text).nftables);
}

const A = port("a", "10.96.0.1");

/** A synced model with services of every kind. */
async function synced(t: TestContext, family: "IPv4" | "IPv6" = "IPv4"): Promise<TestModel> {
  const ruleset = openNetlinkRuleset();
  const connect = () => ruleset.open({ family: family === "IPv4" ? "ip" : "ip6", table: "kube-proxy" });
  const model = newModel({ connect, layout: "Flat", family });
  t.after(async () => {
    model.rig.close();
    await ruleset.close();
  });
  const at = (n: number) => (family === "IPv4" ? `10.180.0.${n}` : `fd00:180::${n}`);
  const vip = (n: number) => (family === "IPv4" ? `10.96.0.${n}` : `fd00:96::${n}`);
  model.set(port("a", vip(1)), [local(at(1)), remote(at(2))]);
  model.set(port("sticky", vip(2), { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 600, nodePort: 30080 }), [
    remote(at(3)),
    remote(at(4)),
    remote(at(5)),
  ]);
  const external = family === "IPv4" ? "203.0.113.3" : "2001:db8::3";
  model.set(
    port("lb", vip(3), {
      loadBalancerVIPs: [ip(external)],
      loadBalancerSourceRanges: (family === "IPv4" ? ["10.0.0.0/8", "192.0.2.0/25"] : ["2001:db8::/33"]) as Cidr[], // canonical
      externalPolicyLocal: true,
    }),
    [remote(at(6))],
  );
  model.set(port("none", vip(4)), []);
  await model.rig.sync();
  return model;
}

async function untilRepaired({ rig }: TestModel, before: string): Promise<void> {
  for (const endMs = performance.now() + stretched(10_000); ; await sleep(2)) {
    if (rig.driver.isSyncDue) await rig.sync();
    if (listed() === before) return;
    assert.ok(performance.now() < endMs, "the damage stays");
  }
}

const DAMAGE: readonly (readonly [what: string, commands: string])[] = [
  ["an element is deleted", `delete element ${TABLE} endpoints-2 { 10.96.0.1 . tcp . 80 . 1 }`],
  [
    "an element leads elsewhere",
    `delete element ${TABLE} endpoints-2 { 10.96.0.1 . tcp . 80 . 1 }
     add element ${TABLE} endpoints-2 { 10.96.0.1 . tcp . 80 . 1 : 192.0.2.1 . 1 }`,
  ],
  ["elements are added", `add element ${TABLE} endpoints-2 { 10.96.0.9 . tcp . 80 . 0 : 192.0.2.1 . 1 }`],
  ["a source is let in", `add element ${TABLE} allowed-sources-25 { 203.0.113.3 . tcp . 80 . 198.51.100.0 }`],
  ["a set is emptied", `flush set ${TABLE} frontends`],
  ["a chain is emptied", `flush chain ${TABLE} frontend-endpoints`],
  [
    "the affinity map is of another size",
    [
      `flush chain ${TABLE} pick-clients-600`,
      `flush chain ${TABLE} remember-frontends-600`,
      `flush chain ${TABLE} remember-nodeports-600`,
      `delete map ${TABLE} clients-600`,
      `add map ${TABLE} clients-600 { type ipv4_addr . ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service ; size 10 ; flags dynamic,timeout ; timeout 600s ; }`,
    ].join("\n"),
  ],
  [
    "a map is of another type, and full",
    [
      `flush chain ${TABLE} pick-endpoints-2`,
      `delete map ${TABLE} endpoints-2`,
      `add map ${TABLE} endpoints-2 { type ipv4_addr : ipv4_addr ; size 1 ; }`,
      `add element ${TABLE} endpoints-2 { 10.0.0.1 : 10.0.0.2 }`,
    ].join("\n"),
  ],
  ["the table is switched off", `add table ${TABLE} { flags dormant ; }`],
  ["the table is gone", `delete table ${TABLE}`],
];

inNetns(import.meta.url, { name: "nftflat" }, () => {
  beforeEach(() => nft("flush ruleset"));

  for (const [what, commands] of DAMAGE) {
    test(`repaired: ${what}`, async (t) => {
      const model = await synced(t);
      const before = listed();
      // Watching has begun once other programs' changes are reported.
      while (model.rig.lost.length === 0) {
        nft(`flush chain ${TABLE} services`);
        await sleep(2);
      }
      await untilRepaired(model, before);
      nft(commands);
      assert.notEqual(listed(), before);
      await untilRepaired(model, before);
    });
  }

  for (const family of ["IPv4", "IPv6"] as const) {
    test(`${family}: a restart writes nothing, and the listing is what the text says`, async (t) => {
      const model = await synced(t, family);
      const before = listed();
      let writes = 0;
      const countWrite = (): void => {
        writes += 1;
      };
      const ruleset = openNetlinkRuleset({ onCommit: countWrite });
      t.after(() => ruleset.close());
      const nftFamily = family === "IPv4" ? "ip" : "ip6";
      const again = newModel({
        connect: () => ruleset.open({ family: nftFamily, table: "kube-proxy" }),
        layout: "Flat",
        family,
      });
      for (const [key, service] of model.services) again.set(service, model.endpoints.get(key) ?? []);
      await again.rig.sync();
      again.rig.close();
      assert.equal(writes, 0);
      assert.equal(listed(), before);
      const memory = await model.rig.fromNothing();
      const text = tableText(tableOf(nftFamily, "kube-proxy", memory.transactions.flat()));
      nft("flush ruleset");
      // nft 1.0.6 gives up on a rule that contains two IPv6 addresses and ports (docs/reference/flat-nftables.md §5).
      if (family === "IPv6") return;
      nft(text);
      assert.equal(listed(), before);
    });
  }

  test("the layouts take over from each other in place, and leave nothing behind", async (t) => {
    const model = await synced(t);
    const flat = listed();
    const fresh = async (): Promise<string> => {
      nft("flush ruleset");
      model.rig.restart();
      await model.rig.sync();
      return listed();
    };
    model.rig.layout = "Compatible";
    model.rig.restart();
    await model.rig.sync();
    const compatible = listed();
    assert.doesNotMatch(compatible, /endpoints-\d/);
    // As in flat tables of version 0.1.
    nft(
      `add set ${TABLE} allowed-sources { type ipv4_addr . inet_proto . inet_service . ipv4_addr ; flags interval ; }`,
    );
    nft(`add element ${TABLE} allowed-sources { 203.0.113.3 . tcp . 80 . 198.51.100.0/24 }`);
    model.rig.layout = "Flat";
    model.rig.restart();
    await model.rig.sync();
    assert.equal(listed(), flat);
    assert.equal(await fresh(), flat);
    model.rig.layout = "Compatible";
    assert.equal(await fresh(), compatible);
  });

  test("killed between building a batch and sending it: the kernel has all of the old, and the next process all of the new", () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const run = (...args: string[]) =>
      spawnSync(process.execPath, ["--no-warnings", KILLED, ...args], { encoding: "utf8", env });
    assert.equal(run("2", "killed", "Flat").signal, "SIGKILL");
    assert.equal(listed(), "\n");
    assert.equal(run("2", "whole", "Flat").status, 0);
    const old = listed();
    assert.equal(run("3", "killed", "Flat").signal, "SIGKILL");
    assert.equal(listed(), old);
    assert.equal(run("3", "whole", "Flat").status, 0);
    assert.match(listed(), /endpoints-3/);
    assert.doesNotMatch(listed(), /endpoints-2/);
    assert.equal(Number(run("3", "whole", "Flat").stdout), 0);
  });

  test("many endpoints come and go by few elements", async (t) => {
    const model = await synced(t);
    const many = (count: number) => Array.from({ length: count }, (_, n) => remote(`10.181.${n >> 8}.${n & 255}`));
    model.setEndpoints(A, many(200));
    await model.rig.sync();
    const before = listed();
    model.setEndpoints(A, many(201));
    await model.rig.sync();
    assert.notEqual(listed(), before);
    model.setEndpoints(A, many(200));
    await model.rig.sync();
    // The whole list in a message would hide the differences.
    const linesOf = (text: string) => new Set(text.split("\n"));
    const after = listed();
    const more = [...linesOf(after).difference(linesOf(before))];
    const fewer = [...linesOf(before).difference(linesOf(after))];
    assert.deepEqual({ more, fewer }, { more: [], fewer: [] });
    assert.equal(after, before);
  });
});
