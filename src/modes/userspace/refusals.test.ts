/** The userspace mode when ports, descriptors or addresses are unavailable, or rules cannot be written. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { BackendRig, proxyPortOf } from "./testing/backend-rig.ts";

const NOTHING = { failures: [] };

/** The outcome without `written`, which the contract of all modes tests. */
async function outcomeOf(rig: BackendRig, ...options: Parameters<BackendRig["sync"]>): Promise<object> {
  const { written: _written, ...outcome } = await rig.sync(...options);
  return outcome;
}

test("a port that another process has gets no rules, is named, and is taken once it is free", async () => {
  const rig = new BackendRig();
  const other = rig.relays.takePort("TCP", ip("0.0.0.0"), 30080);
  rig.set("web", { nodePort: 30080 });
  const { failures } = await rig.sync();
  assert.deepEqual(failures, [
    {
      subject: "ns1/web:p",
      reason:
        "can't open node port for tcp *:30080: cannot listen on 0.0.0.0:30080/TCP: the port is taken by another socket",
    },
  ]);
  assert.equal(proxyPortOf(rig, "172.16.0.1", 80), 32768);
  assert.equal(
    rig.portalRules.some((rule) => rule.includes("30080")),
    false,
  );
  other[Symbol.dispose]();
  assert.deepEqual((await rig.sync()).failures, []);
  assert.equal(
    rig.portalRules.some((rule) => rule.includes("30080")),
    true,
  );
});

test("two services that claim one address: the first by name has it, the other gets it afterwards", async () => {
  const rig = new BackendRig();
  const shared = { externalIPs: [ip("192.168.1.5")] };
  rig.set("b", { ...shared, clusterIP: ip("172.16.0.2") }, ["10.0.0.2"]);
  await rig.sync();
  const a = rig.set("a", { ...shared, clusterIP: ip("172.16.0.1") }, ["10.0.0.1"]);
  assert.deepEqual((await rig.sync()).failures, []);
  const serving = () => rig.connect("TCP", "0.0.0.0", proxyPortOf(rig, "192.168.1.5", 80) ?? 0);
  assert.equal(serving(), "10.0.0.1");
  rig.remove(a);
  await rig.sync();
  assert.equal(serving(), "10.0.0.2");
});

test("an external IP does not take another service's cluster IP, though its name comes first", async () => {
  const rig = new BackendRig();
  rig.set("a", { clusterIP: ip("172.16.0.1"), externalIPs: [ip("172.16.0.2")] }, ["10.0.0.1"]);
  await rig.sync();
  rig.set("b", { clusterIP: ip("172.16.0.2") }, ["10.0.0.2"]);
  assert.deepEqual((await rig.sync()).failures, []);
  assert.equal(rig.connect("TCP", "0.0.0.0", proxyPortOf(rig, "172.16.0.2", 80) ?? 0), "10.0.0.2");
});

test("SCTP is refused in upstream's words, once, and is no failure of the others", async () => {
  const rig = new BackendRig();
  rig.set("sctp", { protocol: "SCTP" });
  rig.set("web");
  assert.deepEqual(await outcomeOf(rig), NOTHING);
  assert.deepEqual(await outcomeOf(rig, { full: true }), NOTHING);
  assert.deepEqual(rig.errors, ["A service port is left out: SCTP is not supported for user space proxy"]);
  assert.equal(rig.openSockets.length, 1);
});

test("with a range of one port the first of three services has it, and the next one gets it when it is free", async () => {
  const rig = new BackendRig({ portRange: "4000" });
  const keys = ["a", "b", "c"].map((name, index) => rig.set(name, { clusterIP: ip(`172.16.0.${index + 1}`) }));
  const { failures } = await rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["ns1/b:p", "ns1/c:p"],
  );
  assert.match(
    failures[0]?.reason ?? "",
    /^failed to allocate proxy port for service "ns1\/b:p": port allocation failed; there are no remaining ports left to allocate in the accepted range \(4000\): widen --proxy-port-range/,
  );
  const stop = new AbortController();
  let asked = 0;
  const watching = rig.backend.monitor(
    () => {},
    stop.signal,
    () => void asked++,
  );
  rig.remove(keys[0] ?? "");
  await rig.sync();
  assert.equal(asked, 1);
  assert.equal((await rig.sync()).failures.length, 1);
  assert.equal(proxyPortOf(rig, "172.16.0.2", 80), 4000);
  stop.abort();
  await watching;
});

test("without descriptors the services that have their sockets go on, and the others are named", async () => {
  const rig = new BackendRig();
  rig.set("a", { clusterIP: ip("172.16.0.1") });
  await rig.sync();
  rig.relays.failWith = () => "out_of_descriptors";
  rig.set("b", { clusterIP: ip("172.16.0.2") });
  const { failures } = await rig.sync();
  assert.equal(failures.length, 1);
  assert.match(failures[0]?.reason ?? "", /failed to start proxy for service "ns1\/b:p": .*out of file descriptors/);
  rig.relays.failWith = () => undefined;
  assert.deepEqual((await rig.sync()).failures, []);
  assert.notEqual(proxyPortOf(rig, "172.16.0.2", 80), undefined);
});

test("rules that cannot be written fail the sync; sockets of removed services stay until nothing leads there", async () => {
  const rig = new BackendRig();
  const key = rig.set("web");
  await rig.sync();
  rig.remove(key);
  rig.iptables.isLocked = true;
  await assert.rejects(rig.sync(), { code: "lock_held" });
  assert.equal(rig.openSockets.length, 1);
  rig.iptables.isLocked = false;
  await rig.sync();
  assert.deepEqual([rig.openSockets, rig.portalRules], [[], []]);
});

test("one service with a name that no rule can carry does not keep the others", async () => {
  const rig = new BackendRig();
  rig.set('we"b');
  rig.set("web", { clusterIP: ip("172.16.0.2") });
  const { failures } = await rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ['ns1/we"b:p'],
  );
  assert.match(failures[0]?.reason ?? "", /cannot be written into a rule/);
  assert.notEqual(proxyPortOf(rig, "172.16.0.2", 80), undefined);
});
