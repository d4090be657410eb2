/** The portal rules if the kernel rejects them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { IptablesError, IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { ip } from "../../model/testing/records.ts";
import { knowsBridgePorts } from "./portal-rules.ts";
import { BackendRig, proxyPortOf } from "./testing/backend-rig.ts";

/** A kernel that rejects every payload with this text without naming a line, as the tools of the legacy back end do. */
class RefusingIptables extends MemoryIptables {
  refused: string | undefined;
  override async restore(payload: Iterable<string>): Promise<void> {
    const text = [...payload].join("");
    if (this.refused !== undefined && text.includes(this.refused)) {
      throw new IptablesRestoreError("failed", "iptables-restore", 1, "iptables-restore failed", undefined);
    }
    await super.restore([text]);
  }
}

test("a service that the kernel refuses is named and tried again; the others are programmed", async () => {
  const iptables = new RefusingIptables("IPv4");
  const rig = new BackendRig({ iptables });
  rig.set("a", { clusterIP: ip("172.16.0.1") });
  await rig.sync();
  iptables.refused = "172.16.0.7";
  rig.set("bad", { clusterIP: ip("172.16.0.7") });
  rig.set("c", { clusterIP: ip("172.16.0.3") });
  const { failures } = await rig.sync();
  assert.deepEqual(failures, [{ subject: "ns1/bad:p", reason: "iptables-restore failed" }]);
  for (const address of ["172.16.0.1", "172.16.0.3"]) assert.notEqual(proxyPortOf(rig, address, 80), undefined);
  rig.set("d", { clusterIP: ip("172.16.0.4") });
  assert.equal((await rig.sync()).failures.length, 1);
  assert.notEqual(proxyPortOf(rig, "172.16.0.4", 80), undefined);
  iptables.refused = undefined;
  assert.deepEqual((await rig.sync()).failures, []);
  assert.notEqual(proxyPortOf(rig, "172.16.0.7", 80), undefined);
  assert.ok((rig.counts["restoreFailure -"] ?? 0) > 0);
});

test("tables that the tool cannot print get each jump once, and are written all the same", async (t) => {
  const iptables = new MemoryIptables("IPv4");
  const rig = new BackendRig({ iptables });
  const unreadable = () =>
    Promise.reject(new IptablesError("unreadable", "iptables-save", 0, "Table `nat' is incompatible"));
  const save = t.mock.method(iptables, "save", unreadable);
  rig.set("a", { clusterIP: ip("172.16.0.1") });
  await rig.sync({ full: true });
  const jumps = iptables.rules("nat", "PREROUTING").length;
  await rig.sync({ full: true });
  save.mock.restore();
  assert.notEqual(proxyPortOf(rig, "172.16.0.1", 80), undefined);
  assert.deepEqual([jumps > 0, iptables.rules("nat", "PREROUTING").length], [true, jumps]);
});

test("whether rules may ask for bridge ports is tried out, and leaves nothing", async () => {
  const iptables = new RefusingIptables("IPv4");
  assert.equal(await knowsBridgePorts(iptables), true);
  assert.deepEqual(iptables.dump("nat"), new MemoryIptables("IPv4").dump("nat"));
  iptables.refused = "physdev";
  assert.equal(await knowsBridgePorts(iptables), false);
  iptables.refused = undefined;
  iptables.isLocked = true;
  await assert.rejects(knowsBridgePorts(iptables), { code: "lock_held" });
});
