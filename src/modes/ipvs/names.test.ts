import assert from "node:assert/strict";
import { test } from "node:test";
import { SET_IDS, setDefinition, setName } from "./names.ts";

test("IPv6 sets have names of their own, cut to what the kernel takes", () => {
  assert.equal(setName("clusterIP", "IPv6"), "KUBE-6-CLUSTER-IP");
  assert.equal(setName("loadBalancerSourceCIDR", "IPv6"), "KUBE-6-LOAD-BALANCER-SOURCE-CID");
  assert.equal(setName("nodePortLocalSCTP", "IPv6"), "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS");
  for (const family of ["IPv4", "IPv6"] as const) {
    const names = SET_IDS.map((id) => setName(id, family));
    assert.equal(new Set(names).size, 17);
    for (const name of names) assert.ok(name.length <= 31, name);
  }
});

test("bitmaps have no family", () => {
  const name = "KUBE-6-NODE-PORT-TCP";
  assert.deepEqual(setDefinition("nodePortTCP", "IPv6"), { name, type: "bitmap:port", family: undefined });
  const loopBack = { name: "KUBE-LOOP-BACK", type: "hash:ip,port,ip", family: "IPv4" };
  assert.deepEqual(setDefinition("loopBack", "IPv4"), loopBack);
});
