/** The userspace mode with a kernel that rejects the rules of one service port, which keeps its last good ones. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import { BackendRig } from "./testing/backend-rig.ts";

/** Rejects new rules with this text, and names their lines. */
function kernelRefusing(text: string): MemoryIptables {
  const kernel = new MemoryIptables("IPv4");
  const restore = kernel.restore.bind(kernel);
  kernel.restore = async (payload, options) => {
    const lines = [...payload].join("").split("\n");
    const at = lines.findIndex((line) => /^-[AI] /.test(line) && line.includes(text));
    if (at >= 0) throw new IptablesRestoreError("failed", "iptables-restore", 1, "refused", at + 1);
    await restore([lines.join("\n")], options);
  };
  return kernel;
}

/** The proxy port that the last rule with this text leads to. */
function leadsTo(rig: BackendRig, chain: string, text: string): number {
  const rule = rig.portalRules.findLast((one) => one.startsWith(`${chain} `) && one.includes(text));
  return Number(/--to-(?:ports |destination \S+:)(\d+)/.exec(rule ?? "")?.[1] ?? 0);
}

test("a service port whose new rules are refused is served by its last good ones", async () => {
  const rig = new BackendRig({ iptables: kernelRefusing("192.0.2.66") });
  rig.set("web", { clusterIP: ip("172.16.0.1") });
  assert.deepEqual((await rig.sync()).failures, []);
  rig.set("web", { clusterIP: ip("172.16.0.1"), externalIPs: [ip("192.0.2.66")] });
  assert.equal((await rig.sync()).failures.length, 1);
  assert.equal(rig.connect("TCP", "0.0.0.0", leadsTo(rig, "KUBE-PORTALS-CONTAINER", "172.16.0.1")), "10.0.0.1");
});

test("where they lead, no other Service listens", async () => {
  const rig = new BackendRig({ iptables: kernelRefusing("192.0.2.66"), portRange: "4000-4003" });
  const endpoints = [makeEndpoint("10.0.0.1", 8080, { isLocal: true })];
  const web = { clusterIP: ip("172.16.0.1"), nodePort: 30080, isExternallyAccessible: true };
  rig.set("web", { ...web, externalPolicyLocal: true }, endpoints);
  assert.deepEqual((await rig.sync()).failures, []);
  // The lane of clients outside goes with the policy.
  rig.set("web", { ...web, externalIPs: [ip("192.0.2.66")] }, endpoints);
  assert.equal((await rig.sync()).failures.length, 1);
  for (let n = 2; n < 5; n++) rig.set(`s${n}`, { clusterIP: ip(`172.16.0.${n}`) }, ["10.0.0.9"]);
  await rig.sync();
  const rules = rig.portalRules.filter((rule) => rule.startsWith("KUBE-NODEPORT-") && rule.includes("--dport 30080 "));
  const proxyPorts = rules.map((rule) => Number(/--to-(?:ports |destination \S+:)(\d+)/.exec(rule)?.[1] ?? 0));
  assert.ok(proxyPorts.length > 0, "its rules have gone");
  for (const proxyPort of proxyPorts) {
    // An unwanted lane has no endpoints.
    assert.notEqual(rig.connect("TCP", "0.0.0.0", proxyPort), "10.0.0.9", `${rules.join("\n")}`);
  }
});

test("a change of policy that is refused takes no endpoints from the clients of the old rules", async () => {
  const rig = new BackendRig({ iptables: kernelRefusing("192.0.2.66"), portRange: "4000-4003" });
  const endpoints = [makeEndpoint("10.0.0.1", 8080, { isLocal: true })];
  const web = { clusterIP: ip("172.16.0.1"), nodePort: 30080, isExternallyAccessible: true };
  rig.set("web", { ...web, externalPolicyLocal: true }, endpoints);
  assert.deepEqual((await rig.sync()).failures, []);
  const outside = leadsTo(rig, "KUBE-NODEPORT-CONTAINER -p tcp", "--dport 30080 ");
  rig.set("web", { ...web, externalIPs: [ip("192.0.2.66")] }, endpoints);
  for (const full of [false, false, true]) {
    assert.equal((await rig.sync({ full })).failures.length, 1);
    assert.equal(leadsTo(rig, "KUBE-NODEPORT-CONTAINER -p tcp", "--dport 30080 "), outside);
    assert.equal(rig.connect("TCP", "0.0.0.0", outside), "10.0.0.1");
  }
});
