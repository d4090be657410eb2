/** Containers of the node that the configuration does not count as pods: an external Local policy applies to them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { FAMILIES, type ServiceSpec, type ServingPod } from "./cluster-objects.ts";
import { answersOf, DESTINATIONS, type Expected } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";

const spec = { externalTrafficPolicy: "Local" };
const here: ServiceSpec = { name: "here", number: 1, endpoints: ["local-1", "remote-1"], spec };
const elsewhere: ServiceSpec = { name: "elsewhere", number: 2, endpoints: ["remote-1"], spec };
/** Contains the serving pods, but not the client. */
const clusterCIDR = "10.180.0.0/26,fd00:10:180::/122";
const local: readonly ServingPod[] = ["local-1"];

for (const mode of ALL_MODES) {
  const { carriesTraffic, hasVirtualServers } = traitsOf[mode];
  // These two do not distinguish such containers.
  if (carriesTraffic || hasVirtualServers) continue;
  test(`${mode}: containers that are no pods of the node`, { skip: kernelSkip }, async (t) => {
    const { probers } = await flowNetwork(t, mode, [here, elsewhere], { config: { clusterCIDR } });
    for (const to of DESTINATIONS.filter((one) => one !== "cluster IP")) {
      await t.test(`at a ${to}`, async () => {
        const cells = FAMILIES.flatMap((family) =>
          protocolsOf(mode).flatMap((protocol) =>
            (
              [
                [here, answersOf(local, true, "pod", family)],
                [elsewhere, { kind: "silence" }],
              ] as const
            ).map(async ([{ name, number }, expected]: readonly [ServiceSpec, Expected]) => {
              const target = addressOf(number, to, protocol, family);
              const difference = await differenceFrom(expected, probers.pod, target);
              return difference === undefined ? [] : [`${name}, ${protocol} over ${family}: ${difference}`];
            }),
          ),
        );
        assert.deepEqual((await Promise.all(cells)).flat(), []);
      });
    }
  });
}
