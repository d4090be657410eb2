/** What `trace` learns about the sockets. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { ip, makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import type { Packet } from "../../trace/packet.ts";
import { plannedTables } from "./cluster-plan.ts";

/** The settings that matter. */
const CONFIG = { bindAddress: "0.0.0.0", userspace: { rules: "none", portRange: "" } } as KubeProxyConfig;
const CLIENT = { source: ip("172.16.9.9"), inInterface: "eth0" } as Packet;

test("without rules, an address that a Service has twice is the cluster IP, as it is listened on", () => {
  const web = makeServicePort();
  const port = { ...web, externalIPs: [web.clusterIP], internalPolicyLocal: true, isExternallyAccessible: true };
  const here = makeEndpoint("10.1.0.1", 80, { isLocal: true });
  const node = {
    ...{ family: "IPv4", name: "node-a", nodeIP: ip("192.168.1.5"), hostAddresses: [web.clusterIP] },
    ...{ detector: { kind: "none" }, nodePortIPs: { kind: "all" } },
    state: {
      services: new Map([[port.name.key, port]]),
      endpoints: new Map([[port.name.key, [here, makeEndpoint("10.1.1.1", 80)]]]),
    },
  } as unknown as OfflineNode;
  const relay = plannedTables(node, CONFIG).relays.get(`tcp ${web.clusterIP}:${web.port}`);
  assert.deepEqual(relay?.endpointsFor(CLIENT), [here]);
});
