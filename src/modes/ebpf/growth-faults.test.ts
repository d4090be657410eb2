/** The kernel rejects a part of the work when maps have to grow. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { type BpfFaults, rig } from "./testing/ebpf-rig.ts";

const faults: Readonly<Record<string, (isGrowing: () => boolean) => BpfFaults>> = {
  "programs over the longer maps": (isGrowing) => ({ loadProgram: () => (isGrowing() ? "ENOMEM" : undefined) }),
  "an element of the longer map": (isGrowing) => ({
    update: (map, key) => (isGrowing() && map === "frontends4" && key[1] === 96 ? "ENOMEM" : undefined),
  }),
};

for (const [what, faultsOf] of Object.entries(faults)) {
  test(`when the kernel refuses ${what}, no socket is led to endpoints that are gone`, async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
    await sync(true);
    assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.180.1.1");
    let isGrowing = true;
    Object.assign(
      subject.faults,
      faultsOf(() => isGrowing),
    );
    for (let number = 0; number < 1026; number++) {
      cluster.set(port(`s${number}`, `10.97.${number >> 8}.${number & 255}`), [remote("10.180.1.9")]);
    }
    await sync();
    isGrowing = false;
    cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.2")]);
    await sync();
    const met = subject.backend.socketPath.isAttached ? subject.connect("TCP", "10.96.0.1", 80) : "10.96.0.1";
    assert.ok(["10.180.1.2", "10.96.0.1"].includes(met), `led to ${met}, which is gone`);
    await sync(true);
    assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.180.1.2", "after a full sync");
  });
}

test("a service port that the maps did not take is forgotten with its Service", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  cluster.set(port("good", "10.96.0.1"), [remote("10.180.1.1")]);
  await sync(true);
  subject.faults.update = (_, key) => (key[3] === 2 ? "ENOMEM" : undefined);
  cluster.set(port("bad", "10.96.0.2"), [remote("10.180.1.2")]);
  await sync();
  assert.equal(subject.metrics.passedPorts, 1);
  subject.faults.update = undefined;
  cluster.delete(port("bad", "10.96.0.2"));
  await sync();
  await sync(true);
  assert.equal(subject.metrics.passedPorts, 0);
  assert.deepEqual(subject.backend.degraded, []);
});

test("of very many service ports that the maps do not take, the log names a few", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.faults.update = (map) => (map === "frontends4" ? "ENOMEM" : undefined);
  for (let number = 0; number < 100; number++) cluster.set(port(`s${number}`, `10.97.0.${number}`), []);
  await sync();
  const line = subject.log.find(({ message }) => message === "Some service ports are not decided at the socket");
  const { names } = line?.facts ?? {};
  assert.match(String(names), /^ns\/s0:p\/TCP, .* and \d+ more$/);
  assert.ok(String(names).length < 1000, `${names}`);
});
