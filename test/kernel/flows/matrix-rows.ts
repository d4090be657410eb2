/** The services of the packet table. */
import type { ServiceSpec, ServingPod } from "./cluster-objects.ts";
import type { Policy, ServiceFacts } from "./expected.ts";

const POLICIES: readonly Policy[] = ["Cluster", "Local"];

const placements: Readonly<Record<string, readonly ServingPod[]>> = {
  "pods on both nodes": ["local-1", "local-2", "remote-1"],
  "a pod on the other node only": ["remote-1"],
  "no pods": [],
};

export interface Row extends ServiceSpec, ServiceFacts {
  readonly title: string;
}

/** Traffic policies × where the pods are. */
export const rows: readonly Row[] = POLICIES.flatMap((external) =>
  POLICIES.flatMap((internal) =>
    Object.entries(placements).map(([place, pods]) => ({ external, internal, place, pods })),
  ),
).map(({ external, internal, place, pods }, index) => ({
  title: `external policy ${external}, internal policy ${internal}, ${place}`,
  name: `row-${index}`,
  number: index + 1,
  external,
  internal,
  pods,
  endpoints: pods,
  spec: { externalTrafficPolicy: external, internalTrafficPolicy: internal },
}));
