/** Changes in portions: related changes may come in different ones. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { Portions } from "../../agent/sync/portions.ts";
import { foreignInMemory } from "../../kernel/nftables/testing/foreign-hand.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { clusterChain, newModel, type TestModel } from "./testing/backend-rig.ts";

const NEVER = new AbortController().signal;

/** Syncs the changed ports in portions until none is left, as the proxier does. */
async function syncInPortions(model: TestModel, changed: ReadonlySet<string>): Promise<void> {
  const portions = new Portions();
  for (let ports = changed; ports.size > 0; ) {
    const portion = portions.first(ports, model.rig.backend.portsAtOnce);
    const { services, endpoints } = model;
    const { failures } = await model.rig.backend.sync(
      {
        isFullSync: false,
        services,
        endpoints,
        endpointCount: 0,
        changedPorts: portion.now,
        zone: undefined,
        serviceCIDRs: [],
      },
      NEVER,
    );
    assert.deepEqual(failures, []);
    portions.note(portion, 150);
    ports = portion.later;
  }
}

function many(name: string, clusterIP: string, count: number): ServicePort[] {
  return Array.from({ length: count }, (_, index) =>
    port(name, clusterIP, { name: servicePortName("ns", name, `p${index}`, "TCP"), port: 1000 + index }),
  );
}

for (const [layout, set] of [
  ["Compatible", "service-ips"],
  ["Flat", "frontends"],
] as const) {
  test(`${layout}: an address that goes from a large Service to a small one in a large change answers`, async () => {
    const model = newModel({ layout });
    const old = many("a-old", "10.96.0.1", 600);
    for (const one of old) model.set(one, [remote("10.180.0.1")]);
    await model.rig.sync();
    // Recreated under another name, with one of its ports, for the same pods.
    const renamed = port("b-new", "10.96.0.1", { port: 1599 });
    for (const one of old) model.delete(one);
    model.set(renamed, [remote("10.180.0.1")]);
    await syncInPortions(model, new Set([...old, renamed].map(({ name }) => name.key)));
    const content = await model.rig.kernel.connect().read();
    const keys = content?.sets.get(set)?.elements.map(({ key }) => key.join(" "));
    assert.deepEqual(keys, ["10.96.0.1 tcp 1599"]);
  });
}

test("chains that others have flushed are mended in whichever portion their ports are", async () => {
  const model = newModel();
  const ports = many("a", "10.96.0.1", 600);
  for (const one of ports) model.set(one, [remote("10.180.0.1")]);
  await model.rig.sync();
  const foreign = model.rig.kernel.connectAnother();
  for (const one of ports) await foreignInMemory(foreign, { kind: "flush-chain", chain: clusterChain(one) });
  const lost = new Set(model.rig.lost.flatMap((one) => [...(one?.ports ?? assert.fail("everything"))]));
  assert.equal(lost.size, 600);
  await syncInPortions(model, lost);
  const content = await model.rig.kernel.connect().read();
  const empty = ports.filter((one) => content?.chains.get(clusterChain(one))?.ruleDigests.length === 0);
  assert.equal(empty.length, 0, `${empty.length} Services do not work`);
});
