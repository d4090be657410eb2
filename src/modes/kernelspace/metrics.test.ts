/** Failed HNS calls: how they are counted, and that they do not change what is known of HNS. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { createFamilies } from "../../metrics/metric-families.ts";
import { ip } from "../../model/testing/records.ts";
import { defineKernelspaceMetrics } from "./metrics.ts";
import { newModel } from "./testing/kernelspace-rig.ts";

const ALL = { nodePort: 30_080, externalIPs: [ip("192.0.2.1")], loadBalancerVIPs: [ip("192.0.2.2")] };
const [ONE, TWO] = [remote("10.180.1.1"), remote("10.180.1.2")];

test("failing calls for load balancers are counted by family, type and error, under upstream's names", async () => {
  const families = createFamilies();
  const model = newModel({
    metrics: defineKernelspaceMetrics(families)("IPv4"),
    config: { healthPort: 10_256 },
    rootName: "cbr0",
  });
  const { host } = model.rig;
  host.addEndpoint({ name: "cbr0", addresses: ["10.180.0.1"] });
  const failing = async (verb: string, hresult: number): Promise<void> => {
    const heal = host.refuse((call) => (call.verb === verb && call.kind === "LoadBalancer" ? hresult : undefined));
    await model.rig.sync();
    heal();
  };
  model.set(port("web", "10.96.0.1", ALL), [ONE]);
  await failing("Create", HR.portAlreadyExists);
  await model.rig.sync();
  model.set(port("web", "10.96.0.1", ALL), [TWO]);
  await failing("Modify", 0x803b_001e);
  await model.rig.sync();
  model.delete(port("web", "10.96.0.1"));
  await failing("Delete", HR.outOfMemory);
  const lines = (await families.render()).split("\n").filter((line) => line.startsWith("kubeproxy"));
  const series = (verb: string, type: string, error: string, count = 1) =>
    `kubeproxy_sync_proxy_rules_winkernel_lb_${verb}_failures_total{ip_family="IPv4",lb_type="${type}",error="${error}"} ${count}`;
  const types = ["clusterip", "nodeport", "externalip", "ingressip"];
  assert.deepEqual(
    lines.sort(),
    [
      ...[...types, "healthcheck"].map((type) => series("create", type, "port_already_exists")),
      ...types.map((type) => series("update", type, "invalid_ip")),
      // A load-balancer address without preserve-destination looks like an external IP; a health check looks like a cluster IP.
      ...[series("delete", "clusterip", "other", 2), series("delete", "externalip", "other", 2)],
      series("delete", "nodeport", "other"),
    ].sort(),
  );
  assert.match(await families.render(), /\[ALPHA\] Cumulative proxy winkernel lb create failures\n/);
});

for (const verb of ["Delete", "Create", "Query", "Open", "Enumerate"] as const) {
  test(`HNS down at "${verb}" is no absence: nothing is made twice when it is back (kubernetes #139503)`, async () => {
    const model = newModel({ canModify: false });
    const { rig } = model;
    model.set(port("web", "10.96.0.1", ALL), [ONE]);
    await rig.sync();
    rig.failedCalls.splice(0);
    model.set(port("web", "10.96.0.1", ALL), [TWO]);
    const heal = rig.host.refuse((call) => (call.verb === verb ? HR.managerStopped : undefined));
    await assert.rejects(rig.sync(), /The HNS service is stopping/);
    heal();
    assert.deepEqual((await rig.sync()).failures, []);
    assert.equal(rig.host.documents("LoadBalancer").size, 4);
    assert.deepEqual(
      rig.failedCalls.filter((call) => !call.includes("stopping")),
      [],
      "no creation met what was there",
    );
  });
}
