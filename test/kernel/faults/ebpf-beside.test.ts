/** A live daemon in ebpf mode beside daemons of any mode: those in other network namespaces leave its programs alone. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelBpf } from "../../../src/kernel/bpf/kernel-bpf.ts";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import { reasonToSkip, testCgroup } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { faultNode, prepareDaemon, served } from "./fault-node.ts";

const DETACHED = "Detached programs of an earlier process";

test("ebpf: programs of another network namespace stay; those of a process that has ended here go, wherever they are", {
  skip: kernelSkip || reasonToSkip(),
}, async (t) => {
  const [node, other] = [await faultNode(t), await faultNode(t)];
  const cgroupRoot = testCgroup(t);
  const pinFolder = `${(await testBpffs(t)).path}/kept`;
  const bpf = kernelBpf();
  const programs = () => bpf.attached("connect4", cgroupRoot);
  const objects = served("web", 1);
  const ebpf = { mode: "ebpf", ebpf: { cgroupRoot, pinFolder } };
  const daemon = prepareDaemon(t, node, { objects, config: ebpf });
  daemon.spawn();
  await daemon.synced();
  const before = programs();
  assert.equal(before.length, 1);

  await t.test("a daemon of another mode in another network namespace, and its --cleanup", async () => {
    for (const config of [{ mode: "nftables" }, { mode: "nftables", ebpf: { cgroupRoot } }]) {
      const beside = prepareDaemon(t, other, { objects, config });
      beside.spawn();
      await beside.synced();
      assert.deepEqual(programs(), before);
      await beside.stop("SIGTERM");
      beside.spawn(undefined, ["--cleanup"]);
      assert.equal(await beside.ended(), 0, beside.log);
      assert.deepEqual(programs(), before);
      assert.doesNotMatch(beside.log, new RegExp(DETACHED));
    }
    assert.doesNotMatch(daemon.log, /The cgroup is gone|Another program has detached/);
  });

  await t.test("another mode follows, with a configuration that knows neither cgroup nor folder", async () => {
    await daemon.stop("SIGTERM");
    assert.deepEqual(programs(), before, "they are pinned");
    const next = prepareDaemon(t, node, { objects, config: { mode: "nftables" } });
    next.spawn();
    await next.synced();
    await next.until("the end of the programs", () => programs().length === 0);
    await next.logged(new RegExp(DETACHED));
  });
});
