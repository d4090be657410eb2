import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { silentLogger } from "../../logging/logger.ts";
import { cleanUpPortals } from "./cleanup.ts";
import { BackendRig } from "./testing/backend-rig.ts";

const tables = (kernel: MemoryIptables) => kernel.dump("nat") + kernel.dump("filter");

test("what the mode leaves goes, and nothing else", async () => {
  const iptables = new MemoryIptables("IPv4");
  await iptables.restore(["*nat\n:KUBE-OTHER - [0:0]\n-A PREROUTING -j KUBE-OTHER\n-A KUBE-OTHER -j RETURN\nCOMMIT\n"]);
  await iptables.restore(["*filter\n-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n"]);
  const before = tables(iptables);
  const rig = new BackendRig({ iptables });
  rig.set("web", { nodePort: 30080 });
  await rig.sync();
  assert.notEqual(tables(iptables), before);
  assert.equal(await cleanUpPortals(iptables, silentLogger), true);
  assert.equal(tables(iptables), before);
});

test("where the mode never ran nothing is written", async () => {
  const iptables = new MemoryIptables("IPv4");
  assert.equal(await cleanUpPortals(iptables, silentLogger), true);
  assert.equal(iptables.restoreCount, 0);
});

test("a lock that is held is a failure, and told", async () => {
  const iptables = new MemoryIptables("IPv4");
  const rig = new BackendRig({ iptables });
  await rig.rules.start();
  iptables.isLocked = true;
  const errors: string[] = [];
  const log = { ...silentLogger, error: (message: string) => void errors.push(message) };
  assert.equal(await cleanUpPortals(iptables, log), false);
  assert.deepEqual(errors, [
    "Error removing the portal rules of table nat",
    "Error removing the portal rules of table filter",
  ]);
});
