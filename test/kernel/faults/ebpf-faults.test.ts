/** What the eBPF mode does without its file system, its cgroup or its capability: it serves, says why in one line, and recovers. */
import assert from "node:assert/strict";
import { mkdirSync, rmdirSync } from "node:fs";
import { test } from "node:test";
import { kernelBpf } from "../../../src/kernel/bpf/kernel-bpf.ts";
import { reasonToSkip, testCgroup } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { faultNode, prepareDaemon, SYNC_PERIOD_MS, served } from "./fault-node.ts";

const NO_SOCKETS = "Nothing is decided at the socket; the nftables rules handle all packets";
const WITHOUT_CAPABILITY = ["setpriv", "--bounding-set=-bpf,-sys_admin"] as const;

test("ebpf: no bpf file system, a cgroup that goes and comes, no capability", {
  skip: kernelSkip || reasonToSkip(),
}, async (t) => {
  const node = await faultNode(t);
  const cgroupRoot = testCgroup(t);
  const bpf = kernelBpf();
  const attached = () => bpf.attached("connect4", cgroupRoot).length;
  const daemon = prepareDaemon(t, node, {
    objects: served("web", 1),
    config: { mode: "ebpf", ebpf: { cgroupRoot, pinFolder: "/tmp/kept", syncPeriod: `${SYNC_PERIOD_MS}ms` } },
  });
  const linesWith = (text: string) => daemon.log.split("\n").filter((line) => line.includes(text));
  /** What the health server reports as degraded, and its status. */
  const health = async (): Promise<readonly string[]> => {
    const { status, body } = await daemon.fetch("http://127.0.0.1:10256/livez?verbose");
    const { degraded = [], status: families } = JSON.parse(body);
    const reasons = degraded.map((one: { subject: string; reason: string }) => `${one.subject}: ${one.reason}`);
    return [`${status}`, ...reasons, ...families.IPv4.remarks];
  };
  const isServed = async () =>
    (await node.exec(["nft", "list", "table", "ip", "kube-proxy"])).stdout.includes("10.96.0.1");

  await t.test("without a bpf file system it works, and says what is missing", async () => {
    daemon.spawn();
    await daemon.synced();
    assert.deepEqual([attached(), await isServed()], [1, true]);
    const [line = "", ...more] = linesWith("while this process is away");
    assert.match(line, /^I.*ebpf\.pinFolder: \/tmp\/kept is not in a bpf file system/);
    assert.deepEqual(more, []);
    assert.deepEqual(await health(), [
      "200",
      `decided at the socket in ${cgroupRoot} for the node and no pod; service ports: 1, connected UDP sockets: 0`,
    ]);
  });

  await t.test("a cgroup that is removed is told, and one in its place is used", async () => {
    rmdirSync(cgroupRoot);
    await daemon.until("the end", async () => (await daemon.metric('kubeproxy_ebpf_attached{ip_family="IPv6"}')) === 0);
    await daemon.until("both", () => linesWith("The cgroup is gone").length === 2);
    assert.equal(linesWith(NO_SOCKETS).length, 2, "once for each family");
    assert.ok(await isServed());
    const gone = `nothing is decided at the socket: the cgroup ${cgroupRoot} is not there`;
    assert.deepEqual(await health(), ["200", gone, gone, gone]);
    mkdirSync(cgroupRoot);
    await daemon.until("the programs", () => attached() === 1);
    await daemon.until("health", async () => (await health()).length === 2);
    await daemon.stop("SIGKILL");
  });

  await t.test("without CAP_BPF the rules lead, and one line for each family says what to do", async () => {
    daemon.log = "";
    const startedAt = Date.now();
    daemon.spawn([...WITHOUT_CAPABILITY]);
    await daemon.synced(startedAt);
    const lines = linesWith(NO_SOCKETS);
    assert.equal(lines.length, 2, daemon.log);
    for (const line of lines) assert.match(line, /CAP_BPF and CAP_NET_ADMIN/);
    await daemon.until("no program", () => attached() === 0);
    assert.ok(await isServed());
    assert.match((await health()).join("\n"), /^200\nnothing is decided at the socket: .*CAP_BPF and CAP_NET_ADMIN/);
  });
});
