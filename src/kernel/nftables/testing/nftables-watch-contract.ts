/** What {@link Nftables} reports about other programs' changes. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { NftForeignChange } from "../nftables.ts";
import type { NftElement, NftSet } from "../ruleset.ts";
import {
  A,
  addChain,
  addElements,
  addRule,
  B,
  CLUSTER_IPS,
  DROP,
  flushChain,
  HAIRPIN,
  ip,
  NODE_PORTS,
  openExample,
  PREROUTING,
} from "./nftables-example.ts";
import type { NftablesRig, NftablesSubject } from "./nftables-subject.ts";

/** How long a notification may take. */
const NOTICE_MS = 2000;

/** Changes to this chain show that watching has begun. */
const PROBE = "probe";

const NODE_PORT_DROP: NftElement = { key: ["tcp", 1], verdict: { kind: "drop" } };

function plain({ chains, sets, isTotal, by }: NftForeignChange): unknown {
  return { chains: [...chains], sets: [...sets], isTotal, by };
}

/** Starts watching; once this resolves, all changes are reported. */
async function watched(t: TestContext, { nft, foreign }: NftablesRig) {
  const stop = new AbortController();
  const changes: NftForeignChange[] = [];
  let hasBegun = false;
  const onChange = (change: NftForeignChange): void => {
    hasBegun = true;
    if (!change.chains.has(PROBE)) changes.push(change);
  };
  const watching = nft.watch(onChange, stop.signal);
  t.after(async () => {
    stop.abort();
    await watching;
  });
  const until = async (holds: () => boolean, what: string): Promise<void> => {
    for (const endMs = performance.now() + NOTICE_MS; !holds(); await sleep(1)) {
      assert.ok(performance.now() < endMs, `no notice of ${what}: ${JSON.stringify(changes.map(plain))}`);
    }
  };
  // Watching may take a moment to begin.
  for (const endMs = performance.now() + NOTICE_MS; !hasBegun && performance.now() < endMs; await sleep(1)) {
    await foreign({ kind: "add-rule", chain: PROBE });
  }
  assert.ok(hasBegun, "no notice of anything");
  return { changes, stop, watching, until };
}

export function nftablesWatch(subject: NftablesSubject): void {
  test("tells what others change, and who", async (t) => {
    const rig = await openExample(subject, t);
    const { changes, until } = await watched(t, rig);
    const hasChain = (chain: string) => () => changes.some(({ chains }) => chains.has(chain));
    const hasSet = (set: NftSet) => () => changes.some(({ sets }) => sets.has(set.name));
    await rig.foreign({ kind: "flush-chain", chain: A });
    await until(hasChain(A), "a flushed chain");
    await rig.foreign({ kind: "delete-chain", chain: B });
    await until(hasChain(B), "a deleted chain");
    await rig.foreign({ kind: "delete-element", set: CLUSTER_IPS, key: [ip("10.96.0.1")] });
    await until(hasSet(CLUSTER_IPS), "a deleted element");
    await rig.foreign({ kind: "add-element", set: NODE_PORTS, key: ["tcp", 30000] });
    await until(hasSet(NODE_PORTS), "an added element");
    await rig.foreign({ kind: "delete-set", set: HAIRPIN });
    await until(hasSet(HAIRPIN), "a deleted set");
    for (const change of changes) {
      assert.equal(change.isTotal, false);
      assert.ok((change.by?.pid ?? 0) > 0);
      assert.equal(change.by?.name, "nft");
      assert.deepEqual([...change.defined], []);
    }
  });

  test("tells chains and sets that may be of another kind from those whose content changed", async (t) => {
    const rig = await openExample(subject, t);
    const { changes, until } = await watched(t, rig);
    await rig.foreign({ kind: "drop-policy", chain: "nat-prerouting", hook: PREROUTING });
    await until(() => changes.some(({ defined }) => defined.has("nat-prerouting")), "a policy");
    await rig.foreign({ kind: "switch-off" });
    await until(() => changes.some(({ isTotal }) => isTotal), "a table that is switched off");
  });

  test("tells that the table is gone", async (t) => {
    const rig = await openExample(subject, t);
    const { changes, until } = await watched(t, rig);
    await rig.foreign({ kind: "delete-table" });
    await until(() => changes.some(({ isTotal }) => isTotal), "a deleted table");
  });

  test("says nothing of what this program changes", async (t) => {
    const rig = await openExample(subject, t);
    const { changes, until } = await watched(t, rig);
    await rig.nft.transact([flushChain(A), addRule(A, DROP), addChain("x"), addElements(NODE_PORTS, NODE_PORT_DROP)]);
    await rig.foreign({ kind: "add-rule", chain: B });
    await until(() => changes.length > 0, "a foreign rule");
    assert.deepEqual(
      changes.flatMap(({ chains, sets }) => [...chains, ...sets]),
      [B],
    );
  });

  test("stops watching when it is told to", async (t) => {
    const rig = await openExample(subject, t);
    const { changes, stop, watching } = await watched(t, rig);
    stop.abort();
    await watching;
    await rig.foreign({ kind: "flush-chain", chain: A });
    await rig.nft.read();
    assert.deepEqual(changes, []);
    await rig.nft.watch(() => assert.fail("told of a change"), AbortSignal.abort());
  });
}
