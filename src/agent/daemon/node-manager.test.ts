import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { NodeRecord } from "../../model/objects.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { RecordingLogger } from "../sync/testing/recorders.ts";
import { nodeRecord } from "../sync/testing/records.ts";
import { NodeManager, type NodeManagerOptions } from "./node-manager.ts";

const ADDRESSES: NodeRecord["addresses"] = [
  { type: "Hostname", address: "node" },
  { type: "ExternalIP", address: "2001:db8::2" },
  { type: "InternalIP", address: "10.0.0.5" },
];

function setUp(options: Partial<NodeManagerOptions> = {}) {
  const clock = new FakeClock();
  const log = new RecordingLogger();
  const fatal: string[] = [];
  const onFatal = (error: Error): void => void fatal.push(error.message);
  const manager = new NodeManager({ nodeName: "node", needsPodCIDRs: false, clock, log, onFatal, ...options });
  const stop = new AbortController();
  let outcome: string | undefined;
  const start = (): void => {
    manager.start(stop.signal).then(
      ({ nodeIPs, podCIDRs }) => {
        outcome = `${nodeIPs.join(",")} ${podCIDRs.join(",")}`;
      },
      (error: unknown) => {
        outcome = String(error);
      },
    );
  };
  const add = (changes: Partial<NodeRecord> = {}): void =>
    manager.onEvent({ kind: "add", object: nodeRecord("node", changes) });
  return { clock, log, fatal, manager, stop, start, add, outcome: () => outcome };
}

describe("node manager: start (node.md §8.2)", () => {
  it("waits for the initial objects however long they take, then takes the node as it is", async () => {
    const { clock, manager, start, add, outcome } = setUp();
    start();
    await clock.advance(3_600_000);
    add({ addresses: ADDRESSES, podCIDRs: ["10.1.0.0/24"] });
    await clock.settle();
    assert.equal(outcome(), undefined);
    manager.onSynced();
    await clock.settle();
    assert.equal(outcome(), "10.0.0.5,2001:db8::2 10.1.0.0/24");
    assert.equal(clock.timerCount, 0);
  });

  it("waits 30 s for addresses and goes on without them, with an error that names the node", async () => {
    const { clock, log, manager, start, add, outcome } = setUp();
    start();
    manager.onSynced();
    await clock.advance(10_000);
    add();
    await clock.advance(19_999);
    assert.equal(outcome(), undefined);
    await clock.advance(1);
    assert.equal(outcome(), " ");
    assert.deepEqual(log.lines, [
      'I Waiting for the Node object {"node":"node","atMostSeconds":30}',
      'E Timed out waiting for node to be assigned IPs {"node":"node"}',
    ]);
  });

  it("goes on without the node itself after 30 s", async () => {
    const { clock, log, manager, start, outcome } = setUp();
    manager.onSynced();
    start();
    await clock.advance(30_000);
    assert.equal(outcome(), " ");
    assert.deepEqual(log.lines, [
      'I Waiting for the Node object {"node":"node","atMostSeconds":30}',
      'E Timed out waiting for node to exist {"node":"node"}',
    ]);
  });

  it("takes addresses that come while it waits", async () => {
    const { clock, manager, start, add, outcome } = setUp();
    manager.onSynced();
    start();
    await clock.advance(29_000);
    add({ addresses: ADDRESSES });
    await clock.settle();
    assert.equal(outcome(), "10.0.0.5,2001:db8::2 ");
  });

  it("waits up to 5 more minutes for pod CIDRs, and takes addresses that come meanwhile", async () => {
    const { clock, log, manager, start, add, outcome } = setUp({ needsPodCIDRs: true });
    manager.onSynced();
    start();
    add();
    await clock.advance(200_000);
    add({ addresses: ADDRESSES });
    await clock.advance(129_000);
    assert.equal(outcome(), undefined);
    add({ addresses: ADDRESSES, podCIDRs: ["10.1.0.0/24"] });
    await clock.settle();
    assert.equal(outcome(), "10.0.0.5,2001:db8::2 10.1.0.0/24");
    assert.deepEqual(log.lines, [
      'I Waiting for the node\'s addresses {"node":"node","atMostSeconds":30}',
      'I Waiting for the node\'s pod CIDRs {"node":"node","atMostSeconds":300}',
    ]);
  });

  it("fails when pod CIDRs do not come", async () => {
    const { clock, manager, start, add, outcome } = setUp({ needsPodCIDRs: true });
    manager.onSynced();
    start();
    add({ addresses: ADDRESSES });
    await clock.advance(299_999);
    assert.equal(outcome(), undefined);
    await clock.advance(1);
    assert.equal(outcome(), 'Error: timeout waiting for PodCIDR allocation on node "node"');
  });

  it("fails when pod CIDRs are needed and the node does not come, or has gone again", async () => {
    for (const wasThere of [false, true]) {
      const { clock, manager, start, add, outcome } = setUp({ needsPodCIDRs: true });
      manager.onSynced();
      start();
      if (wasThere) {
        add();
        manager.onEvent({ kind: "delete", object: nodeRecord("node") });
      }
      await clock.advance(330_000);
      assert.equal(outcome(), 'Error: timeout waiting for node "node" to exist');
    }
  });

  it("does not wait at all for a source whose objects are all known", async () => {
    for (const needsPodCIDRs of [false, true]) {
      const { clock, manager, start, outcome } = setUp({ needsPodCIDRs, maxWaitMs: 0 });
      start();
      manager.onSynced();
      await clock.settle();
      assert.equal(outcome(), needsPodCIDRs ? 'Error: timeout waiting for node "node" to exist' : " ");
    }
  });

  it("ends with the reason of an abort", async () => {
    const { clock, manager, stop, start, outcome } = setUp();
    manager.onSynced();
    start();
    await clock.advance(1);
    stop.abort(new Error("terminated"));
    await clock.settle();
    assert.equal(outcome(), "Error: terminated");
    assert.equal(clock.timerCount, 0);
  });
});

describe("node manager: afterwards (node.md §8.3)", () => {
  async function started(needsPodCIDRs: boolean) {
    const bench = setUp({ needsPodCIDRs });
    bench.manager.onSynced();
    bench.add({ addresses: ADDRESSES, podCIDRs: ["10.1.0.0/24", "fd01::/64"] });
    bench.start();
    await bench.clock.settle();
    assert.notEqual(bench.outcome(), undefined);
    return bench;
  }

  it("calls other pod CIDRs, or the same in another order, fatal when they are needed", async () => {
    for (const podCIDRs of [["10.2.0.0/24", "fd01::/64"], ["fd01::/64", "10.1.0.0/24"], []]) {
      const { fatal, log, add } = await started(true);
      add({ addresses: ADDRESSES, podCIDRs });
      assert.deepEqual(fatal, [
        `pod CIDRs of node "node" changed from [10.1.0.0/24 fd01::/64] to [${podCIDRs.join(" ")}]: ` +
          "a restart is needed to use them",
      ]);
      assert.match(log.lines.join("\n"), /^E PodCIDRs changed for the node/);
    }
  });

  it("does not care about pod CIDRs that nothing needs", async () => {
    const { fatal, log, add } = await started(false);
    add({ addresses: ADDRESSES, podCIDRs: [] });
    assert.deepEqual([fatal, log.lines], [[], []]);
  });

  it("only logs other addresses", async () => {
    const { fatal, log, add } = await started(false);
    add({ addresses: [{ type: "InternalIP", address: "10.0.0.6" }] });
    assert.deepEqual(fatal, []);
    assert.deepEqual(log.lines, [
      'I NodeIPs changed for the node {"node":"node","newNodeIPs":["10.0.0.6"],"oldNodeIPs":["10.0.0.5","2001:db8::2"]}',
    ]);
  });

  it("reports that its node is being deleted, and goes on", async () => {
    const { fatal, log, manager, add } = await started(true);
    add({ addresses: ADDRESSES, podCIDRs: ["10.1.0.0/24", "fd01::/64"], taintKeys: ["t"] });
    manager.onEvent({ kind: "delete", object: nodeRecord("node") });
    assert.deepEqual([fatal, log.lines], [[], ['E Node is being deleted {"node":"node"}']]);
  });

  it("ignores other nodes", async () => {
    const { fatal, manager } = await started(true);
    manager.onEvent({ kind: "add", object: nodeRecord("other") });
    assert.deepEqual(fatal, []);
  });
});
