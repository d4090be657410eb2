/** Pods whose link has no address on the node's side, as Calico makes them, are clients like others, in every mode. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, outcomes } from "./asking.ts";
import { FAMILIES, type ServiceSpec } from "./cluster-objects.ts";
import { DESTINATIONS } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf } from "./modes.ts";
import { addPointToPointPod } from "./point-to-point-pod.ts";

const service: ServiceSpec = { name: "web", number: 1, endpoints: ["local-1", "remote-1"] };

for (const mode of ALL_MODES) {
  test(`${mode}: a pod whose link has no address on the node is served`, { skip: kernelSkip }, async (t) => {
    const { topology, cgroup } = await flowNetwork(t, mode, [service]);
    const pod = await addPointToPointPod(topology, cgroup);
    for (const to of DESTINATIONS) {
      await t.test(`at a ${to}`, async () => {
        for (const family of FAMILIES) {
          for (const protocol of protocolsOf(mode)) {
            const answers = await ask(pod, addressOf(service.number, to, protocol, family), 3);
            const failed = answers.filter(
              (answer) => !answer.ok || !service.endpoints.includes(answer.pod as "local-1"),
            );
            assert.deepEqual(outcomes(failed), [], `${protocol} over ${family}`);
          }
        }
      });
    }
  });
}
