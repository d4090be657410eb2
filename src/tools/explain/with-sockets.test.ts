/** What `explain --kernel` says about sockets. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../../agent/settings/defaults.ts";
import { checkConfig } from "../../agent/settings/validate.ts";
import type { LedSocket, LiveSockets } from "../../contract/inspection.ts";
import { makeService } from "../../model/testing/records.ts";
import { withSockets } from "./diff-sockets.ts";
import { explainedCluster, explainPorts } from "./explained-cluster.ts";
import { explanationText } from "./text.ts";

const LED: LedSocket = {
  clients: "all",
  isRefused: false,
  endpoints: ["10.1.0.1:80", "10.1.0.2:80"],
  affinitySeconds: 0,
};

async function explained(live: LiveSockets) {
  const service = makeService({
    name: "web",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1"],
    externalIPs: ["192.0.2.4"],
  });
  const objects = { services: [service], endpointSlices: [], nodes: [], serviceCIDRs: [] };
  const checked = checkConfig(applyPlatformDefaults(resolveDocument({ ...EMPTY_DOCUMENT, mode: "ebpf" })));
  assert.ok(checked.ok);
  const cluster = await explainedCluster(objects, checked.config, ["IPv4"], () => {});
  const families = cluster.families.map((family) => ({
    ...family,
    inspection: {
      ...family.inspection,
      loadSockets: async () => ({
        live: async () => live,
        wanted: () => new Map(),
        chain: () => ({ kind: "chains" as const, chains: () => [] }),
      }),
    },
  }));
  const keys = [...(families[0]?.node.state.services.keys() ?? [])];
  const warnings: string[] = [];
  const ports = await withSockets({ ...cluster, families }, await explainPorts(cluster, keys), (line) =>
    warnings.push(line),
  );
  return { ports, warnings };
}

test("each address says where the kernel leads sockets", async () => {
  const port = makeService({}).ports[0]?.port;
  const sockets = new Map([[`TCP 10.96.0.1:${port}`, LED]]);
  const rest = { own: new Set<never>(), answering: [], pods: new Map<never, boolean>() };
  const { ports, warnings } = await explained({ ok: true, sockets, ledPods: 3, ...rest });
  assert.deepEqual(warnings, []);
  assert.deepEqual(
    ports.flatMap(({ frontends }) => frontends.map((one) => one.sockets)),
    [["leads to 10.1.0.1:80", "leads to 10.1.0.2:80", "for the node and 3 pods"], ["takes the rules"]],
  );
  const [text] = ports.map((one) => explanationText(one));
  assert.match(
    text ?? "",
    /^ {4}the kernel now, at connect\(\): leads to 10\.1\.0\.1:80, 10\.1\.0\.2:80; for the node and 3 pods$/m,
  );
  assert.match(text ?? "", /^ {4}the kernel now, at connect\(\): takes the rules$/m);
});

test("what cannot be read is told, and nothing is said of it", async () => {
  const { ports, warnings } = await explained({ ok: false, reason: "nothing is pinned" });
  assert.deepEqual(warnings, ["what sockets connect to could not be read (IPv4): nothing is pinned"]);
  assert.deepEqual(
    ports.flatMap(({ frontends }) => frontends.map((one) => one.sockets)),
    [undefined, undefined],
  );
});
