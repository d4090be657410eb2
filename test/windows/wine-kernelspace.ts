/** Kernelspace mode under Wine: HNS's state is written from a folder of manifests, followed, adopted and cleaned up. */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { HNS_NOTICES } from "../../src/modes/kernelspace/hcn/hcn-calls.ts";
import { hostState } from "../../src/modes/kernelspace/testing/kernelspace-rig.ts";
import { HnsFile, WineProcess, windowsPath, windowsProgram } from "../../testkit/wine/wine-host.ts";
import { twinOf } from "./twin.ts";
import { assertEnded, get, until } from "./wine-support.ts";

const NETWORK = "10000000-0000-4000-8000-000000000001";
/** The cluster's network, and what its CNI plugin has made for two pods of this node. */
const HOST = [
  `N ${NETWORK} {"Name":"cbr0","Type":"L2Bridge"}`,
  `E 20000000-0000-4000-8000-000000000002 {"Name":"pod-1","HostComputeNetwork":"${NETWORK}","IpConfigurations":[{"IpAddress":"10.180.0.10"},{"IpAddress":"fd00:10:180::10"}],"MacAddress":"00-15-5D-00-00-01"}`,
  `E 20000000-0000-4000-8000-000000000003 {"Name":"pod-2","HostComputeNetwork":"${NETWORK}","IpConfigurations":[{"IpAddress":"10.180.0.11"},{"IpAddress":"fd00:10:180::11"}],"MacAddress":"00-15-5D-00-00-02"}`,
];
/** As HNS numbers what it tells. */
const ENDPOINT_ATTACHED = 9;
const [HEALTHZ, METRICS] = ["127.0.0.1:21256", "127.0.0.1:21249"];

const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "win-1" },
  status: { addresses: [{ type: "InternalIP", address: "192.168.0.2" }] },
};

function service(name: string, last: number, spec: object = {}): object {
  const clusterIPs = [`10.96.0.${last}`, `fd00:10:96::${last}`];
  const addresses = { clusterIP: clusterIPs[0], clusterIPs, ipFamilies: ["IPv4", "IPv6"] };
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name },
    spec: { ...addresses, ports: [{ port: 80 }], ...spec },
  };
}

function slices(name: string, local: readonly number[], remote: readonly number[]): readonly object[] {
  return (["IPv4", "IPv6"] as const).map((addressType) => {
    const [here, there] = addressType === "IPv4" ? ["10.180.0.", "10.180.1."] : ["fd00:10:180::", "fd00:10:180:1::"];
    const endpoints = [
      ...local.map((last) => ({ addresses: [`${here}${last}`], nodeName: "win-1" })),
      ...remote.map((last) => ({ addresses: [`${there}${last}`], nodeName: "win-2" })),
    ];
    const metadata = { name: `${name}-${addressType.toLowerCase()}`, labels: { "kubernetes.io/service-name": name } };
    return {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata,
      addressType,
      ports: [{ port: 8080 }],
      endpoints,
    };
  });
}

/** @param folder for files. */
export async function kernelspaceFollowsManifests(t: TestContext, folder: string): Promise<void> {
  const manifests = join(folder, "my manifests");
  mkdirSync(manifests);
  const write = (objects: readonly object[]): void =>
    writeFileSync(
      join(manifests, "cluster.json"),
      JSON.stringify({ apiVersion: "v1", kind: "List", items: [NODE, ...objects] }),
    );
  const objects = [
    service("web", 1, { type: "NodePort", ports: [{ port: 80, nodePort: 30080 }] }),
    ...slices("web", [10], [1, 2]),
    service("sticky", 2, { sessionAffinity: "ClientIP" }),
    ...slices("sticky", [10, 11], []),
    service("local", 3, { type: "NodePort", externalTrafficPolicy: "Local", ports: [{ port: 80, nodePort: 30081 }] }),
    ...slices("local", [11], [3]),
  ];
  write(objects);
  const hns = new HnsFile(join(folder, "hns.state"));
  const start = () => {
    const run = new WineProcess({
      ...windowsProgram,
      args: [
        ...["--manifests", windowsPath(manifests), "--network-name", "cbr0", "--hostname-override", "WIN-1"],
        ...["--healthz-bind-address", HEALTHZ, "--metrics-bind-address", METRICS],
        ...["--windows-priorityclass", "HIGH_PRIORITY_CLASS"],
      ],
      hns,
      output: join(folder, "program.log"),
    });
    t.after(() => run.kill());
    return run;
  };
  const run = start();
  const untilTwin = async (what: string, wanted: readonly object[]): Promise<void> => {
    const twin = hostState(await twinOf([NODE, ...wanted], HOST));
    await until(
      what,
      async () => assert.deepEqual(hostState(hns), twin),
      () => run.log,
    );
  };

  await until(
    "health to say what is waited for",
    async () => assert.match(await get(`http://${HEALTHZ}/healthz`), /"start","reason":"HNS has no network/),
    () => run.log,
  );
  hns.write(HOST);
  await untilTwin("HNS to have what the twin in memory has", objects);
  assert.ok(hns.documents("LoadBalancer").size >= 10);
  await until(
    "good health",
    async () => assert.match(await get(`http://${HEALTHZ}/healthz`), /"healthy":true/),
    () => run.log,
  );
  await until(
    "the mode",
    async () => assert.equal(await get(`http://${METRICS}/proxyMode`), "kernelspace"),
    () => run.log,
  );
  assert.match(run.log, /"Set the priority class" class="HIGH_PRIORITY_CLASS"/);
  assert.ok(run.log.includes(`node="${process.version}"`), "the Node.js that is pinned");
  assert.match(await get(`http://${METRICS}/metrics`), /^kubeproxy_sync_proxy_rules_duration_seconds_count/m);

  const [lost] = hns.documents("LoadBalancer").keys();
  hns.lose("LoadBalancer", lost ?? "");
  hns.notify(ENDPOINT_ATTACHED);
  await untilTwin("what another program has deleted to be there again", objects);
  hns.notify(HNS_NOTICES.serviceGone);
  await until(
    "HNS to be back, as both families see it",
    async () => assert.equal(run.log.match(/HNS is back/g)?.length, 2),
    () => run.log,
  );

  const changed = [
    ...objects.slice(0, 1),
    ...slices("web", [11], [2, 3, 4]),
    ...objects.slice(6),
    service("late", 4),
    ...slices("late", [], [9]),
  ];
  write(changed);
  await untilTwin("a change to arrive", changed);

  run.pressCtrlC();
  await assertEnded(run);
  assert.match(run.log, /Stopping; the rules stay in place.*SIGINT/);
  const left = hostState(hns);
  assert.deepEqual(left, hostState(await twinOf([NODE, ...changed], HOST)), "what HNS has stays");

  const before = [...hns.documents("LoadBalancer").keys()];
  const again = start();
  await until(
    "another start",
    async () => assert.match(again.log, /Runtime settings/),
    () => again.log,
  );
  await until(
    "a sync",
    async () =>
      assert.match(
        await get(`http://${METRICS}/metrics`),
        /^kubeproxy_sync_proxy_rules_duration_seconds_count\S* [1-9]/m,
      ),
    () => again.log,
  );
  assert.deepEqual([...hns.documents("LoadBalancer").keys()], before, "all load balancers are kept");
  again.pressCtrlC();
  await assertEnded(again);

  const cleanUp = new WineProcess({
    ...windowsProgram,
    args: ["--cleanup", "--network-name", "cbr0"],
    hns,
    output: join(folder, "cleanup.log"),
  });
  await assertEnded(cleanUp);
  assert.equal(hns.documents("LoadBalancer").size, 0);
  assert.equal(hns.documents("Endpoint").size, 2, "the pods' own");
}
