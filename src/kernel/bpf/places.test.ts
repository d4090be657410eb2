/** Which cgroup and folder are chosen, and the messages for unusable ones. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { cgroup2Mounts, findCgroupRoot, findPinFolder, podCgroups } from "./places.ts";
import { testBpffs } from "./testing/test-bpffs.ts";
import { reasonToSkip, testCgroup } from "./testing/test-cgroup.ts";

const mount = (path: string, root = "/") => `29 23 0:26 ${root} ${path} rw,nosuid shared:9 - cgroup2 cgroup2 rw`;
const OTHERS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 22 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw";

test("mounts are read with the names that they have", () => {
  const text = [OTHERS, mount("/sys/fs/cgroup/unified"), mount("/mnt/a\\040b")].join("\n");
  assert.deepEqual(cgroup2Mounts(text), ["/sys/fs/cgroup/unified", "/mnt/a b"]);
});

test("where only a part of the node can be seen, it is not taken for the whole", (t) => {
  const part = mkdtempSync(join(tmpdir(), "kpts-part-"));
  t.after(() => rmSync(part, { recursive: true }));
  const found = findCgroupRoot("", () => [OTHERS, mount(part, "/../..")].join("\n"));
  assert.ok(!found.ok);
  assert.match(found.reason, new RegExp(`^${part} shows only a part of the node: mount the host's /sys/fs/cgroup`));
  const none = findCgroupRoot("", () => OTHERS);
  assert.match(none.ok ? "" : none.reason, /^no cgroup2 file system is mounted: .* ebpf\.cgroupRoot/);
});

test("the root is found among several mounts", { skip: reasonToSkip() }, (t) => {
  const inner = testCgroup(t);
  const root = join(inner, "..");
  const found = findCgroupRoot("", () => [mount(inner, "/pod"), mount("/gone"), mount(root)].join("\n"));
  // A machine that is itself a container does not see the root.
  const isRoot = statSync(root).ino === 1;
  assert.deepEqual(found, isRoot ? { ok: true, path: root } : { ok: false, reason: found.ok ? "" : found.reason });
});

test("a folder that is named is taken when it is a cgroup, also one that is not there yet", {
  skip: reasonToSkip(),
}, (t) => {
  const cgroup = testCgroup(t);
  for (const path of [cgroup, `${cgroup}/later/on`]) assert.deepEqual(findCgroupRoot(path), { ok: true, path });
  for (const [path, reason] of [
    ["/tmp", /^ebpf\.cgroupRoot: \/tmp is not in a cgroup2 file system/],
    ["/tmp/none", /^ebpf\.cgroupRoot: \/tmp\/none is not in a cgroup2 file system/],
    [`${cgroup}/cgroup.procs`, /cgroup.procs is not a folder$/],
  ] as const) {
    const found = findCgroupRoot(path);
    assert.match(found.ok ? "" : found.reason, reason);
  }
});

test("cgroups of pods are those below kubelet's, by either of its drivers", (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-cgroups-"));
  t.after(() => rmSync(root, { recursive: true }));
  const make = (path: string): bigint => {
    mkdirSync(join(root, path), { recursive: true });
    return statSync(join(root, path), { bigint: true }).ino;
  };
  make("system.slice/docker-1.scope");
  const found = podCgroups(root);
  const pods = [
    ...["kubepods", "kubepods/burstable", "kubepods/burstable/pod1", "kubepods/burstable/pod1/c1"],
    ...["kubelet.slice/kubelet-kubepods.slice", "kubelet.slice/kubelet-kubepods.slice/pod2.slice"],
  ].map(make);
  assert.equal(found.size, 0);
  assert.deepEqual(podCgroups(root), new Set(pods));
  assert.equal(podCgroups(join(root, "gone")).size, 0);
});

test("a folder for names is on a bpf file system, also one that is not made yet", {
  skip: reasonToSkip(),
}, async (t) => {
  const { path } = await testBpffs(t);
  assert.deepEqual(findPinFolder(`${path}/a/b`), { ok: true, path: `${path}/a/b` });
  assert.deepEqual(findPinFolder("/tmp/none/b"), {
    ok: false,
    reason: "ebpf.pinFolder: /tmp/none/b is not in a bpf file system",
  });
});
