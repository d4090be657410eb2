/** The kernel's nf_tables passes the contract, with `nft` as the other program; and tests of what only a real kernel does. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NETLINK_NETFILTER } from "../../../src/kernel/netlink/constants.ts";
import { libc } from "../../../src/kernel/netlink/libc.ts";
import { NetlinkSocket } from "../../../src/kernel/netlink/socket.ts";
import { openNetlinkRuleset } from "../../../src/kernel/nftables/netlink-nftables.ts";
import type { NftForeignChange, NftOperation } from "../../../src/kernel/nftables/nftables.ts";
import type { NftHook, NftSet } from "../../../src/kernel/nftables/ruleset.ts";
import { tableOf } from "../../../src/kernel/nftables/ruleset-table.ts";
import { tableText } from "../../../src/kernel/nftables/ruleset-text.ts";
import { comparisonContract } from "../../../src/kernel/nftables/testing/comparison-contract.ts";
import { foreignNftText } from "../../../src/kernel/nftables/testing/foreign-hand.ts";
import { nftablesContract } from "../../../src/kernel/nftables/testing/nftables-contract.ts";
import type { NftablesSubject } from "../../../src/kernel/nftables/testing/nftables-subject.ts";
import { targetMapContract, targetMapExample } from "../../../src/kernel/nftables/testing/target-map-contract.ts";
import type { IpAddress } from "../../../src/net/ip.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";

const TABLE = "kube-proxy";
const NAME = { family: "ip", table: TABLE } as const;
const PATIENCE_MS = 3000;

function nft(input: string): void {
  execFileSync("nft", ["-f", "-"], { input, stdio: ["pipe", "ignore", "pipe"] });
}

const list = (): string => execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });

function open(t: TestContext, options?: Parameters<typeof openNetlinkRuleset>[0]) {
  nft("flush ruleset\n");
  const ruleset = openNetlinkRuleset(options);
  t.after(() => ruleset.close());
  return { ruleset, ours: ruleset.open(NAME) };
}

const OUTPUT: NftHook = { type: "filter", hook: "output", priority: 0 };
const ADDRESSES: NftSet = { name: "addresses", key: ["address"], isMap: false };
const EXAMPLE: readonly NftOperation[] = [
  { kind: "add-table", comment: "rules for kube-proxy" },
  { kind: "add-set", set: ADDRESSES },
  { kind: "add-chain", chain: { name: "out", hook: OUTPUT } },
];

/** So many rules and elements that their notifications exceed a small receive buffer. */
function large(round: number): NftOperation[] {
  const elements = Array.from({ length: 2000 }, (_, n) => ({
    key: [`10.${round}.${n >> 8}.${n & 255}` as IpAddress], // canonical
  }));
  const rules = Array.from(
    { length: 1000 },
    (): NftOperation => ({ kind: "add-rule", chain: "out", rule: { statements: [{ kind: "ct-new" }] } }),
  );
  return [{ kind: "add-elements", set: ADDRESSES, elements }, ...rules];
}

/** Watches until the test ends. */
async function watched(t: TestContext, ours: ReturnType<typeof open>["ours"]) {
  const stop = new AbortController();
  const changes: NftForeignChange[] = [];
  const watching = ours.watch((change) => changes.push(change), stop.signal);
  t.after(async () => {
    stop.abort();
    await watching;
  });
  const until = async (holds: () => boolean): Promise<void> => {
    for (const endMs = performance.now() + PATIENCE_MS; !holds(); await sleep(2)) {
      assert.ok(performance.now() < endMs, `still waiting: ${JSON.stringify(changes)}`);
    }
  };
  // Watching has begun when a change by another program is reported.
  for (let n = 0; changes.length === 0; n += 1) {
    nft(`add chain ip ${TABLE} begin${n}\n`);
    await sleep(5);
  }
  changes.length = 0;
  return { changes, until };
}

/** After this long, lost notifications have been noticed, even on a busy machine. */
const NOTICED_MS = 250;

inNetns(import.meta.url, { name: "nftnetlink" }, () => {
  const subject: NftablesSubject = {
    name: "over netlink",
    skip: false,
    open: async (t) => ({
      nft: open(t).ours,
      foreign: async (command) => nft(foreignNftText("ip", TABLE, command)),
    }),
  };
  nftablesContract(subject);
  targetMapContract(subject);
  comparisonContract(subject);
  comparisonContract({
    ...subject,
    name: "over netlink, ip6",
    open: async (t) => ({ ...(await subject.open(t)), nft: open(t).ruleset.open({ family: "ip6", table: TABLE }) }),
  });

  for (const family of ["ip", "ip6"] as const) {
    test(`maps to targets are listed as their text says (${family})`, async (t) => {
      const { ruleset } = open(t);
      const operations = targetMapExample(family);
      await ruleset.open({ family, table: TABLE }).transact(operations);
      const text = tableText(tableOf(family, TABLE, operations));
      const plain = (listing: string): string =>
        listing.replaceAll(/\s+/g, " ").replaceAll(/ ?\b(tcp|th) dport/g, " dport");
      assert.equal(plain(list()), plain(text));
    });
  }

  describe("what others do to the ruleset", () => {
    test("another program's commits to its own tables do not get in the way of a table that is watched", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      const { changes } = await watched(t, ours);
      const content = await ours.read();
      nft("add table ip theirs\nadd chain ip theirs c\n");
      nft("add rule ip theirs c drop\n");
      await ours.transact([{ kind: "add-chain", chain: { name: "x" } }], { generation: content?.generation ?? 0 });
      assert.ok((await ours.read())?.chains.has("x"));
      assert.deepEqual(changes, []);
    });

    test("under a stream of commits of our own, announcements gather; what others do among them is told", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      const { changes, until } = await watched(t, ours);
      const poll = t.mock.method(libc(), "poll");
      const startMs = performance.now();
      const commits = 60;
      for (let n = 0; n < commits; n += 1) {
        await ours.transact([{ kind: "add-chain", chain: { name: `own${n}` } }]);
        await sleep(1);
      }
      // Each wait uses a thread; waits are at least 50 ms apart.
      const most = 2 + (performance.now() - startMs) / 50;
      assert.ok(poll.mock.callCount() <= most, `${poll.mock.callCount()} waits, ${most} expected`);
      nft(`add chain ip ${TABLE} theirs\n`);
      await until(() => changes.length > 0);
      assert.deepEqual([...(changes[0]?.chains ?? [])], ["theirs"]);
    });

    test("a foreign change to the table itself is a conflict, watched or not", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      await watched(t, ours);
      const content = await ours.read();
      nft(`flush chain ip ${TABLE} out\nadd chain ip ${TABLE} y\n`);
      const work = ours.transact([{ kind: "add-chain", chain: { name: "x" } }], {
        generation: content?.generation ?? 0,
      });
      await assert.rejects(work, { code: "conflict" });
    });

    test("sets without a name are no news of their own", async (t) => {
      const { ours } = open(t);
      const targets = [1, 2].map((port) => ({ ip: "10.0.0.1" as IpAddress, port })); // canonical
      const rule = { statements: [{ kind: "random-dnat", targets } as const] };
      await ours.transact([
        ...EXAMPLE,
        { kind: "add-chain", chain: { name: "endpoints" } },
        { kind: "add-rule", chain: "endpoints", rule },
      ]);
      const { changes, until } = await watched(t, ours);
      nft(`flush chain ip ${TABLE} endpoints\n`);
      await until(() => changes.length > 0);
      assert.deepEqual(
        changes.map(({ chains, sets }) => [[...chains], [...sets]]),
        [[["endpoints"], []]],
      );
    });

    test("what is read is read again while others change the table", async (t) => {
      const { ours } = open(t);
      await ours.transact([...EXAMPLE, ...large(1)]);
      const reading = ours.read();
      nft(`add chain ip ${TABLE} late\n`);
      assert.ok((await reading)?.chains.has("late"));
    });

    test("tables of one ruleset tell each other's changes from those of others", async (t) => {
      const { ours, ruleset } = open(t);
      const other = ruleset.open({ family: "ip6", table: TABLE });
      await ours.transact(EXAMPLE);
      const { changes, until } = await watched(t, ours);
      await other.transact(EXAMPLE);
      nft(`delete table ip6 ${TABLE}\nadd chain ip ${TABLE} z\n`);
      await until(() => changes.length > 0);
      assert.deepEqual(
        changes.map(({ chains, isTotal }) => [[...chains], isTotal]),
        [[["z"], false]],
      );
    });

    test("lost announcements of our own commits are no foreign change", async (t) => {
      const { ours } = open(t, { receiveBufferBytes: 4096 });
      await ours.transact(EXAMPLE);
      const { changes, until } = await watched(t, ours);
      // Without the filter, the notifications of so many commits would not fit the buffer.
      for (let round = 1; round <= 3; round += 1) {
        const chains = Array.from({ length: 60 }, (_, n) => ({ name: `own${round}-${n}` }));
        await Promise.all(chains.map((chain) => ours.transact([{ kind: "add-chain", chain }])));
      }
      // A commit by another program during the recovery would rightly put everything in doubt. The recovery excludes
      // our own commits, so once the losses have been noticed, one more of ours comes after it.
      await sleep(NOTICED_MS);
      await ours.transact([{ kind: "add-chain", chain: { name: "after" } }]);
      await sleep(NOTICED_MS);
      assert.deepEqual(changes, []);
      nft(`add chain ip ${TABLE} z\n`);
      await until(() => changes.length > 0);
      assert.deepEqual(
        changes.map(({ chains, isTotal }) => [[...chains], isTotal]),
        [[["z"], false]],
      );
    });

    test("commits right after the report of a loss are reported, too", async (t) => {
      const { ours } = open(t, { receiveBufferBytes: 4096 });
      await ours.transact(EXAMPLE);
      await watched(t, ours);
      const stop = new AbortController();
      const told: NftForeignChange[] = [];
      const watching = ours.watch((change) => {
        told.push(change);
        if (told.length === 1) nft(`add chain ip ${TABLE} z\n`);
      }, stop.signal);
      await sleep(NOTICED_MS);
      nft(Array.from({ length: 3000 }, () => `add rule ip ${TABLE} out drop\n`).join(""));
      for (const endMs = performance.now() + PATIENCE_MS; told.length < 2; await sleep(2)) {
        assert.ok(performance.now() < endMs, `still waiting: ${JSON.stringify(told)}`);
      }
      stop.abort();
      await watching;
    });

    test("what follows from a reading is not committed after a later transaction", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      await watched(t, ours);
      const added = (comment: string): NftOperation[] => [
        { kind: "add-rule", chain: "out", rule: { comment, statements: [{ kind: "ct-new" }] } },
      ];
      const generation = (await ours.read())?.generation ?? 0;
      nft("add table ip theirs\n");
      await sleep(NOTICED_MS);
      await Promise.allSettled([ours.transact(added("first"), { generation }), ours.transact(added("second"))]);
      const order = [...list().matchAll(/comment "(first|second)"/g)].map(([, comment]) => comment);
      assert.ok(order.at(-1) === "second", order.join());
    });

    test("a stream of commits to one table of a ruleset does not keep another one from being written", async (t) => {
      const { ruleset, ours } = open(t);
      await ours.transact(EXAMPLE);
      await watched(t, ours);
      const six = ruleset.open({ family: "ip6", table: TABLE });
      await six.transact([{ kind: "add-table", comment: "" }]);
      let isOver = false;
      const streams = [0, 1].map(async (stream) => {
        for (let n = 0; !isOver; n += 1) {
          await six.transact([{ kind: "add-chain", chain: { name: `c${stream}-${n}` } }]);
        }
      });
      for (let n = 0; n < 20; n += 1) {
        const generation = (await ours.read())?.generation ?? 0;
        await sleep(1);
        await ours.transact([{ kind: "add-chain", chain: { name: `c${n}` } }], { generation });
      }
      isOver = true;
      await Promise.all(streams);
    });

    test("announcements of our own that are lost because the socket was opened again are no foreign change either", async (t) => {
      const { ours } = open(t, { receiveBufferBytes: 4096 });
      await ours.transact(EXAMPLE);
      const { changes, until } = await watched(t, ours);
      const failing = t.mock.method(fs, "writeSync", () => {
        throw Object.assign(new Error("EIO"), { errno: -5 });
      });
      syncBuiltinESMExports();
      await assert.rejects(ours.mark());
      failing.mock.restore();
      syncBuiltinESMExports();
      // Another socket takes the former port id.
      await using _other = NetlinkSocket.open(NETLINK_NETFILTER);
      await ours.transact(large(1));
      await sleep(NOTICED_MS);
      assert.equal(changes.length, 0);
      nft(`add chain ip ${TABLE} z\n`);
      await until(() => changes.some(({ chains }) => chains.has("z")));
    });

    test("lost announcements of others make everything doubtful, once", async (t) => {
      const { ours } = open(t, { receiveBufferBytes: 4096 });
      await ours.transact(EXAMPLE);
      const { changes, until } = await watched(t, ours);
      const rules = Array.from({ length: 3000 }, () => `add rule ip ${TABLE} out drop\n`).join("");
      nft(rules);
      await until(() => changes.some(({ isTotal }) => isTotal));
      changes.length = 0;
      nft(`add chain ip ${TABLE} z\n`);
      await until(() => changes.some(({ chains }) => chains.has("z")));
    });
  });

  describe("what is not ours is not taken for it", () => {
    test("a table that was switched off says so", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      assert.equal((await ours.read())?.isDormant, false);
      nft(`add table ip ${TABLE} { flags dormant ; }\n`);
      const content = await ours.read();
      assert.deepEqual([content?.isDormant, content?.hasOtherFlags], [true, false]);
      await ours.transact([{ kind: "add-table", comment: "" }]);
      assert.doesNotMatch(list(), /dormant/);
    });

    test("a chain that drops what its rules leave says so, one of another type is of no kind of ours", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      nft(`chain ip ${TABLE} out { policy drop ; }\nadd chain ip ${TABLE} r { type route hook output priority 0 ; }\n`);
      const chains = (await ours.read())?.chains;
      assert.deepEqual(chains?.get("out")?.hook, { ...OUTPUT, policy: "drop" });
      assert.equal(chains?.get("r")?.hook, "other");
    });

    test("a set that is bounded, or whose elements expire or limit, has no key of ours; one that counts has", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      const sets = [
        "size 7 ;",
        "flags timeout ;",
        "timeout 5s ;",
        "policy memory ;",
        "limit rate 1/second ;",
        "flags constant ;",
      ];
      nft(sets.map((more, n) => `add set ip ${TABLE} s${n} { type ipv4_addr ; ${more} }\n`).join(""));
      const content = await ours.read();
      for (const [n, more] of sets.entries()) assert.deepEqual(content?.sets.get(`s${n}`)?.key, undefined, more);
      assert.deepEqual(content?.sets.get(ADDRESSES.name)?.key, ["address"]);
      nft(`add set ip ${TABLE} counting { type ipv4_addr ; counter ; elements = { 10.0.0.1 } ; }\n`);
      const { key, hasCounters, elements } = (await ours.read())?.sets.get("counting") ?? {};
      assert.deepEqual(
        { key, hasCounters, elements },
        {
          ...{ key: ["address"], hasCounters: true, elements: [{ key: ["10.0.0.1"], packets: 0 }] },
        },
      );
    });

    test("sets of other kinds have no key of ours, elements of others keep their bytes", async (t) => {
      const { ours } = open(t);
      await ours.transact(EXAMPLE);
      nft(
        [
          `add set ip ${TABLE} ranges { type ipv4_addr ; flags interval ; elements = { 10.0.0.0/8 } ; }`,
          `add set ip ${TABLE} marks { type mark ; elements = { 7 } ; }`,
          `add map ip ${TABLE} addresses-of { type inet_service : ipv4_addr ; elements = { 80 : 10.0.0.1 } ; }`,
          `add map ip ${TABLE} verdicts { type inet_proto . inet_service : verdict ; elements = { icmp . 8 : accept } ; }`,
          "",
        ].join("\n"),
      );
      const sets = (await ours.read())?.sets;
      for (const name of ["ranges", "marks", "addresses-of"]) {
        assert.equal(sets?.get(name)?.key, undefined, name);
        assert.deepEqual(sets?.get(name)?.elements, [], name);
      }
      assert.deepEqual(sets?.get("verdicts")?.elements, [{ key: [1, 8] }]);
      const verdicts: NftSet = { name: "verdicts", key: ["protocol", "port"], isMap: true };
      await ours.transact([{ kind: "delete-elements", set: verdicts, keys: [[1, 8]] }]);
      assert.deepEqual((await ours.read())?.sets.get("verdicts")?.elements, []);
    });
  });

  test("a check applies nothing, and says what a transaction would", async (t) => {
    const { ruleset } = open(t);
    await ruleset.check(NAME, EXAMPLE);
    assert.equal(list(), "");
    const wrong: NftOperation[] = [...EXAMPLE, { kind: "flush-chain", chain: "gone" }];
    await assert.rejects(ruleset.check(NAME, wrong), {
      code: "not_found",
      operation: EXAMPLE.length,
      message: /chain gone/,
    });
  });

  test("without CAP_NET_ADMIN it says what is missing", () => {
    const script = `
      const { openNetlinkRuleset } = await import(${JSON.stringify(new URL("../../../src/kernel/nftables/netlink-nftables.ts", import.meta.url).href)});
      const ruleset = openNetlinkRuleset();
      const table = ruleset.open({ family: "ip", table: "t" });
      for (const work of [() => table.transact([{ kind: "add-table", comment: "" }]), () => table.read()]) {
        await work().then(() => console.log("accepted"), (error) => console.log(String(error.code + " " + error.message)));
      }
      await ruleset.close();`;
    const { stdout, stderr, signal } = spawnSync(
      "setpriv",
      ["--bounding-set=-net_admin", process.execPath, "--input-type=module", "-e", script],
      { encoding: "utf8" },
    );
    const lines = stdout.trim().split("\n");
    assert.equal(lines.length, 2, `${signal ?? ""}${stdout}${stderr}`);
    for (const line of lines) assert.match(line, /^denied .*EPERM.*run as root or with CAP_NET_ADMIN$/);
  });
});
