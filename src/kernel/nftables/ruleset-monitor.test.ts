import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { byteReader } from "../netlink/attributes.ts";
import { forEachMessage } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFNL_SUBSYS_NFTABLES, NFPROTO_IPV4, NFPROTO_IPV6, putNfnetlink } from "../netlink/nfnetlink.ts";
import type { SubscriptionOptions } from "../netlink/subscription.ts";
import type { NftForeignChange } from "./nftables.ts";
import { RulesetMonitor } from "./ruleset-monitor.ts";
import { NFT_MSG_DELRULE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWGEN } from "./wire/constants.ts";
import { chain as chainCodec, generation as generationCodec, rule } from "./wire/objects.ts";

const OWN_PORT = 7;
const OTHER_PORT = 99;
const IPV4 = { nfproto: NFPROTO_IPV4, table: "kube-proxy" };
const IPV6 = { nfproto: NFPROTO_IPV6, table: "kube-proxy" };

/** A monitor of a fake kernel, which sends the test's notifications. The ruleset starts in generation 10. */
async function monitored(t: TestContext) {
  let generation = 10;
  let committed = 0;
  let subscription: SubscriptionOptions | undefined;
  const stop = new AbortController();
  t.after(() => stop.abort());
  const monitor = new RulesetMonitor({
    client: {
      portId: OWN_PORT,
      hasPort: (port) => port === OWN_PORT,
      generation: async () => ({ id: generation, commits: committed }),
    },
    async listen(options) {
      subscription = options;
    },
  });
  const watch = (table: typeof IPV4): NftForeignChange[] => {
    const changes: NftForeignChange[] = [];
    void monitor.watch(table, (change) => void changes.push(change), stop.signal);
    return changes;
  };
  const announce = (type: number, portId: number, write: (messages: MessageBuffer) => void, nfproto = 0): void => {
    const messages = new MessageBuffer();
    putNfnetlink(messages, NFNL_SUBSYS_NFTABLES, type, 0, nfproto, write);
    forEachMessage(byteReader(messages.bytes), messages.bytes.length, (reply) => {
      subscription?.onMessage({ ...reply, portId });
    });
  };
  const changes = watch(IPV4);
  await sleep(1);
  return {
    monitor,
    watch,
    changes,
    /** A commit by another program, or with `isOwn` by us. @returns its generation */
    commit(isOwn = false): number {
      if (isOwn) committed += 1;
      return ++generation;
    },
    announceCommit(id: number, portId = OTHER_PORT, by?: NftForeignChange["by"]): void {
      const who = by && { processId: by.pid, processName: by.name };
      announce(NFT_MSG_NEWGEN, portId, (out) => generationCodec.write(out, { id, ...who }));
    },
    announceRule(chain: string, { nfproto, table } = IPV4): void {
      announce(NFT_MSG_DELRULE, OTHER_PORT, (out) => rule.write(out, { table, chain }), nfproto);
    },
    announceChain(name: string): void {
      const { nfproto, table } = IPV4;
      announce(NFT_MSG_NEWCHAIN, OTHER_PORT, (out) => chainCodec.write(out, { table, name }), nfproto);
    },
    lose(): void {
      subscription?.onOverrun();
      // The queue is empty now.
      void subscription?.rest?.();
    },
  };
}

const totals = (changes: readonly NftForeignChange[]) => changes.filter(({ isTotal }) => isTotal).length;

test("what others commit is told by chain; our own commits, of which nothing is announced, are no news", async (t) => {
  const { monitor, changes, commit, announceCommit, announceRule } = await monitored(t);
  announceRule("services");
  announceCommit(commit());
  assert.deepEqual(
    changes.map(({ chains, isTotal }) => [[...chains], isTotal]),
    [[["services"], false]],
  );
  const since = commit(true);
  const own = commit(true);
  assert.equal(await monitor.isUntouched(IPV4, since, { generation: own, commits: 2 }), true);
  announceCommit(commit(true), OWN_PORT);
  assert.equal(changes.length, 1);
  // Another program's commit, whose notification comes later.
  const other = commit();
  const untouched = monitor.isUntouched(IPV4, since, { generation: other, commits: 3 });
  announceRule("services");
  announceCommit(other);
  assert.equal(await untouched, false);
});

test("a commit of a thread is told of its process; one whose thread is gone or another's, as the kernel says", async (t) => {
  const { changes, commit, announceCommit, announceRule } = await monitored(t);
  const text = (file: string) => readFileSync(`/proc/${file}`, "utf8").trimEnd();
  const threads = readdirSync("/proc/self/task").map(Number);
  const pid = threads.find((thread) => thread !== process.pid) ?? assert.fail("no other thread");
  const thread = { pid, name: text(`${pid}/comm`) };
  const gone = { pid: 2 ** 30, name: "nft" };
  for (const by of [thread, { ...thread, name: "nft" }, gone]) {
    announceRule("services");
    announceCommit(commit(), OTHER_PORT, by);
  }
  const itself = { pid: process.pid, name: text(`${process.pid}/comm`) };
  assert.notEqual(itself.name, thread.name);
  assert.deepEqual(
    changes.map(({ by }) => by),
    [itself, { ...thread, name: "nft" }, gone],
  );
});

test("a chain that another program renames is reported, also when the new name looks like that of an anonymous set", async (t) => {
  const { monitor, changes, commit, announceCommit, announceChain } = await monitored(t);
  announceChain("_services");
  const id = commit();
  announceCommit(id);
  assert.deepEqual(
    changes.map(({ chains, defined }) => [[...chains], [...defined]]),
    [[["_services"], ["_services"]]],
  );
  assert.equal(await monitor.isUntouched(IPV4, id - 1, { generation: id, commits: 0 }), false);
});

test("another program's lost commit is told, although a further one is announced while it is looked for", async (t) => {
  const { changes, commit, announceCommit, lose } = await monitored(t);
  commit();
  lose();
  await sleep(1);
  announceCommit(commit());
  await sleep(60);
  assert.ok(totals(changes) > 0);
});

test("a commit of which only the end was announced may have changed anything", async (t) => {
  const { changes, commit, announceCommit, announceRule, lose } = await monitored(t);
  const id = commit();
  announceRule("services");
  lose();
  announceCommit(id);
  await sleep(60);
  assert.ok(totals(changes) > 0);
});

test("what is lost while a loss is looked into is looked into after it", async (t) => {
  const { changes, commit, lose } = await monitored(t);
  commit(true);
  lose();
  await sleep(1);
  commit();
  lose();
  await sleep(90);
  assert.ok(totals(changes) > 0);
});

test("nothing is known of a table before it was watched, although another one was", async (t) => {
  const { monitor, watch, commit, announceCommit, announceRule } = await monitored(t);
  const id = commit();
  announceRule("services", IPV6);
  announceCommit(id);
  watch(IPV6);
  const then = { generation: id, commits: 0 };
  assert.equal(await monitor.isUntouched(IPV6, id - 1, then), false);
  assert.equal(await monitor.isUntouched(IPV4, id - 1, then), true);
  const later = commit();
  announceCommit(later);
  assert.equal(await monitor.isUntouched(IPV6, later, { generation: later, commits: 0 }), true);
});

test("what was announced late is not counted for what others commit after it", async (t) => {
  const { monitor, changes, commit, announceCommit, announceRule, lose } = await monitored(t);
  const early = commit();
  lose();
  await sleep(60);
  announceCommit(early);
  changes.length = 0;
  // Another program's commit, whose notification is still under way.
  const other = commit();
  const untouched = monitor.isUntouched(IPV4, early, { generation: other, commits: 0 });
  await sleep(10);
  announceRule("services");
  announceCommit(other);
  assert.equal(await untouched, false);
});

test("a commit that is never announced is not waited for again and again", async (t) => {
  const { monitor, commit, announceCommit } = await monitored(t);
  const lost = commit();
  assert.equal(await monitor.isUntouched(IPV4, lost - 1, { generation: lost, commits: 0 }), false);
  const next = commit();
  announceCommit(next);
  await sleep(60);
  assert.equal(await monitor.isUntouched(IPV4, next, { generation: next, commits: 0 }), true);
  const last = commit();
  announceCommit(last);
  assert.equal(await monitor.isUntouched(IPV4, next, { generation: last, commits: 0 }), true);
});

test("what is asked before it is known where watching began waits for that", async () => {
  const stop = new AbortController();
  const generation = async () => {
    await sleep(5);
    return { id: 10, commits: 0 };
  };
  const monitor = new RulesetMonitor({
    client: { portId: OWN_PORT, hasPort: () => false, generation },
    async listen() {},
  });
  const watching = monitor.watch(IPV4, () => assert.fail(), stop.signal);
  assert.equal(await monitor.isUntouched(IPV4, 10, { generation: 10, commits: 0 }), true);
  stop.abort();
  await watching;
});
