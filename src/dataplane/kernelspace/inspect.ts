/** What a service port owns in kernelspace mode: load balancers of HNS. Reference windows.md §2.6. */
import type { KernelPart, ModeInspection } from "../inspection.ts";
import { offlineOptions } from "./cluster-plan.ts";
import { rootEndpointNameOf } from "./host-config.ts";
import { type PlannedLoadBalancer, planServicePort } from "./plan-service-port.ts";

/** The kernelspace mode, seen by people who look at HNS. */
export const inspectKernelspace: ModeInspection = {
  choice: () => "by HNS, for each connection",
  sharedPurpose: () => undefined,
  // HNS names nothing but by IDs of its own.
  namesOf: () => [],
  ownerTest: () => undefined,
  loadCounters: async () => ({
    isEndpointTracked: false,
    fill: async () => ["HNS keeps no counts that can be asked."],
  }),
  partsOf(node, kubeProxyConfig, key) {
    const port = node.state.services.get(key);
    if (port === undefined) return [];
    const { config, facts } = offlineOptions(node, kubeProxyConfig);
    const plan = planServicePort(port, node.state.endpoints.get(key) ?? [], config, facts);
    return plan.loadBalancers.map(
      (planned): KernelPart => ({
        kind: "load balancer",
        name: planned.key,
        where: "HNS",
        purpose: `leads to ${endpointsOf(planned, rootEndpointNameOf(kubeProxyConfig))}`,
      }),
    );
  },
};

function endpointsOf({ endpoints, mapping }: PlannedLoadBalancer, root: string): string {
  if (endpoints === "root") return `the node itself (${root})`;
  return `${endpoints.join(", ")}, port ${mapping.internalPort}`;
}
