/**
 * iptables-restore rejects the rules of one service: the others are programmed, the failure is named everywhere it
 * should be, and it ends by itself when its cause is gone.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { stretched } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import {
  faultNode,
  isServed,
  isServedAsMade,
  nodeObject,
  SYNC_PERIOD_MS,
  served,
  service,
  slice,
  startDaemon,
} from "./fault-node.ts";
import { type Complaint, RestoreWrapper, restoreFailures } from "./restore-wrapper.ts";

const HEALTHZ = "http://127.0.0.1:10256/healthz";

interface Failure {
  readonly ipFamily: string;
  readonly subject: string;
  readonly reason: string;
}

async function healthOf(daemon: ProxyDaemon): Promise<{ status: number; failures: readonly Failure[] }> {
  const { status, body } = await daemon.fetch(HEALTHZ);
  return { status, failures: JSON.parse(body).failures ?? [] };
}

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-fault-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

const good = [1, 2, 3].flatMap((number) => served(`good-${number}`, number));
const bad = served("bad", 9);

async function goodOnes(daemon: ProxyDaemon): Promise<boolean> {
  const rules = await daemon.saved("iptables-save");
  return [1, 2, 3].every((number) => isServedAsMade(rules, number));
}

describe("rules that are refused", { concurrency: 2, skip: kernelSkip, timeout: stretched(120_000) }, () => {
  for (const complaint of ["names the line", "names nothing"] satisfies Complaint[]) {
    test(`from the start, by a tool that ${complaint}`, async (t) => {
      const wrapper = new RestoreWrapper(scratch(t), complaint);
      wrapper.refuse("ns/bad");
      const node = await faultNode(t);
      const daemon = await startDaemon(t, node, { objects: good, env: wrapper.env });
      daemon.writeObjects([nodeObject, ...good, ...bad, ...served("late", 4)]);
      await daemon.until("the others", async () => isServedAsMade(await daemon.saved("iptables-save"), 4));
      assert.ok(await goodOnes(daemon));
      assert.doesNotMatch(await daemon.saved("iptables-save"), /ns\/bad/);
      await daemon.until("the failure in /healthz", async () => (await healthOf(daemon)).failures.length > 0);
      const [failure, ...more] = (await healthOf(daemon)).failures;
      assert.deepEqual([failure?.ipFamily, failure?.subject, more], ["IPv4", "ns/bad:http", []]);
      assert.match(failure?.reason ?? "", complaint === "names the line" ? /line \d+ failed/ : /not in the mood/);
      await daemon.logged(/"Sync failed" err="the kernel refused a part of the rules: ns\/bad:http \(/);
      assert.ok((await restoreFailures(daemon)) > 0);
      // Longer than a change may wait.
      await setTimeout(3 * SYNC_PERIOD_MS);
      assert.equal((await healthOf(daemon)).status, 200, "the others are served, and other nodes refuse it too");

      wrapper.heal();
      await daemon.until("all services", async () => isServedAsMade(await daemon.saved("iptables-save"), 9));
      await daemon.until("health", async () => (await healthOf(daemon)).status === 200);
      assert.deepEqual((await healthOf(daemon)).failures, []);
      assert.ok(await goodOnes(daemon));
    });

    test(`of a service that worked before, by a tool that ${complaint}`, async (t) => {
      const wrapper = new RestoreWrapper(scratch(t), complaint);
      const node = await faultNode(t);
      const daemon = await startDaemon(t, node, { objects: [...good, ...bad], env: wrapper.env });
      assert.ok(isServedAsMade(await daemon.saved("iptables-save"), 9));
      wrapper.refuse("ns/bad");
      // A change to the bad one, to a good one, and to the node, which makes the sync a full one.
      const moved = [service("bad", "10.96.0.9"), slice("bad", ["10.180.5.9"])];
      const changed = [service("good-1", "10.96.0.1"), slice("good-1", ["10.180.5.1"])];
      const otherZone = {
        ...nodeObject,
        metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "zone-2" } },
      };
      daemon.writeObjects([otherZone, ...changed, ...good.slice(2), ...moved]);
      await daemon.until("the changed one", async () =>
        isServed(await daemon.saved("iptables-save"), "10.96.0.1", ["10.180.5.1"]),
      );
      const rules = await daemon.saved("iptables-save");
      assert.ok(isServedAsMade(rules, 2) && isServedAsMade(rules, 3));
      assert.ok(isServedAsMade(rules, 9), "the bad one keeps its last known good rules");
      await daemon.until("the failure in /healthz", async () =>
        (await healthOf(daemon)).failures.some(({ subject }) => subject === "ns/bad:http"),
      );
      wrapper.heal();
      await daemon.until("the bad one", async () =>
        isServed(await daemon.saved("iptables-save"), "10.96.0.9", ["10.180.5.9"]),
      );
      await daemon.until("health", async () => (await healthOf(daemon)).failures.length === 0);
    });
  }

  test("a chain that a foreign rule holds is named, emptied, and deleted once it is free", async (t) => {
    const node = await faultNode(t);
    const daemon = await startDaemon(t, node, { objects: [...good, ...bad] });
    const rules = await daemon.saved("iptables-save");
    const chain = /^-A (KUBE-SEP-\S+) .*--to-destination 10\.180\.1\.9:8080$/m.exec(rules)?.[1] ?? "";
    await node.exec(["iptables", "-t", "nat", "-N", "FOREIGN"]);
    await node.exec(["iptables", "-t", "nat", "-A", "FOREIGN", "-j", chain]);
    const shrunk = [service("bad", "10.96.0.9"), slice("bad", ["10.180.0.9"])];
    daemon.writeObjects([nodeObject, ...good, ...shrunk, ...served("late", 4)]);
    await daemon.until("the failure in /healthz", async () =>
      (await healthOf(daemon)).failures.some(({ subject }) => subject === `chain ${chain}`),
    );
    const held = await daemon.saved("iptables-save");
    assert.ok(isServedAsMade(held, 4) && (await goodOnes(daemon)));
    assert.ok(isServed(held, "10.96.0.9", ["10.180.0.9"]), "its service has the endpoints that it should have");
    assert.match(held, new RegExp(`^-A FOREIGN -j ${chain}$`, "m"));
    assert.doesNotMatch(held, new RegExp(`^-A ${chain} `, "m"));
    await node.exec(["iptables", "-t", "nat", "-F", "FOREIGN"]);
    await daemon.until("the end of the chain", async () => !(await daemon.saved("iptables-save")).includes(chain));
    await daemon.until("health", async () => (await healthOf(daemon)).failures.length === 0);
  });
});
