/** One random cluster with one node, for tests that look at what packets meet in it. */
import type { ClusterRecords } from "../../src/model/objects.ts";
import type { IpAddress, IpFamily } from "../../src/net/ip.ts";
import fc from "../../testkit/support/fast-check.ts";
import { NODE_NAME, stepArbitrary } from "./cluster-arbitrary.ts";
import { Objects } from "./object-history.ts";

export interface SampledNode {
  readonly node: IpAddress;
  readonly podCIDR: string;
}

/** The objects that a random history leaves; no ServiceCIDRs. The same for the same seed. */
export function sampledCluster(family: IpFamily, seed: number, { node, podCIDR }: SampledNode): ClusterRecords {
  const services = new Objects<ClusterRecords["services"][number]>();
  const slices = new Objects<ClusterRecords["endpointSlices"][number]>();
  for (const step of fc.sample(stepArbitrary(family), { numRuns: 50, seed })) {
    if (step.kind === "write-service") services.write(step.object);
    if (step.kind === "write-slice") slices.write(step.object);
  }
  return {
    services: [...services.byKey.values()],
    endpointSlices: [...slices.byKey.values()],
    nodes: [
      {
        name: NODE_NAME,
        uid: "",
        zone: "zone-1",
        addresses: [{ type: "InternalIP", address: node }],
        podCIDRs: [podCIDR],
        taintKeys: [],
        isBeingDeleted: false,
      },
    ],
    serviceCIDRs: [],
    problems: [],
  };
}
