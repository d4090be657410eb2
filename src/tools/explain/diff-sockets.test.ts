/** Socket differences in a whole comparison; the mode's own tests cover the contents of maps. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../../agent/settings/defaults.ts";
import { checkConfig } from "../../agent/settings/validate.ts";
import type { LiveSockets } from "../../contract/inspection.ts";
import { ip } from "../../model/testing/records.ts";
import { diffSockets } from "./diff-sockets.ts";
import { explainedCluster } from "./explained-cluster.ts";

const LED = { clients: "all", isRefused: false, endpoints: ["10.1.0.1:80"], affinitySeconds: 0 } as const;

async function differences(live: LiveSockets, masqueradeAll = false) {
  const objects = { services: [], endpointSlices: [], nodes: [], serviceCIDRs: [] };
  const checked = checkConfig(applyPlatformDefaults(resolveDocument({ ...EMPTY_DOCUMENT, mode: "ebpf" })));
  assert.ok(checked.ok);
  const cluster = await explainedCluster(objects, { ...checked.config, masqueradeAll }, ["IPv4"], () => {});
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
  return await diffSockets({ ...cluster, families });
}

test("what is read is compared", async () => {
  const live = {
    ok: true,
    sockets: new Map([["TCP 10.96.0.1:80", LED]]),
    own: new Set<never>(),
    answering: [],
    ledPods: 3,
    pods: new Map<never, boolean>(),
  } as const;
  const found = await differences(live);
  assert.deepEqual(found.unread, []);
  assert.deepEqual(
    found.differences.map(({ state, name, extra }) => [state, name, ...extra]),
    [["extra", "TCP 10.96.0.1:80", "leads to 10.1.0.1:80"]],
  );
  assert.deepEqual(await differences(live, true), { differences: [], unread: [] }, "masqueradeAll");
});

test("the node's addresses that serve node ports are compared", async () => {
  const [one, other] = [ip("192.0.2.1"), ip("192.0.2.2")];
  const live = {
    ok: true,
    sockets: new Map(),
    own: new Set([one, ip("127.0.0.1")]),
    answering: [other],
    ledPods: 0,
    pods: new Map<never, boolean>(),
  } as const;
  const { differences: found } = await differences(live);
  assert.deepEqual(
    found.map(({ name, missing, extra }) => [name, missing, extra]),
    [["addresses that serve node ports", [one], [other]]],
  );
  assert.deepEqual((await differences({ ...live, answering: [one] })).differences, []);
});

test("what cannot be read is told in one line, and is no difference", async () => {
  const found = await differences({ ok: false, reason: "nothing is pinned in /bpf" });
  assert.deepEqual(found, {
    differences: [],
    unread: [
      "what sockets connect to could not be read (IPv4): nothing is pinned in /bpf; the rules alone are compared",
    ],
  });
});
