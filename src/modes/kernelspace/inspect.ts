/** What a service port owns in kernelspace mode: HNS load balancers. Reference windows.md §2.6. */
import type { KernelPart, ModeInspection } from "../../contract/inspection.ts";
import type { ModeWords } from "../../contract/mode-words.ts";
import { planInput } from "./cluster-plan.ts";
import { rootEndpointNameOf } from "./host-config.ts";
import { type PlannedLoadBalancer, planServicePort } from "./plan-service-port.ts";

/** Descriptions for people who inspect HNS. */
const WORDS: ModeWords = {
  unserved: "there is no load balancer for it",
  localPolicy: "",
  sourceRanges: () => "loadBalancerSourceRanges has no effect: load balancers of the host do not tell clients apart.",
  affinity: () =>
    "A client keeps its endpoint for as long as Windows chooses: HNS takes no timeout (sessionAffinity ClientIP).",
  sources: ({ config, port }) => [
    config.winkernel.enableDSR
      ? "Endpoints answer clients of the cluster IP directly (winkernel.enableDSR), and see their addresses."
      : "Without winkernel.enableDSR, endpoints see this node or the source VIP as the client of the cluster IP.",
    ...(port.externalPolicyLocal
      ? [
          "externalTrafficPolicy Local needs direct server return in HNS (9.3 to 9.x, or from 10.2 on); without it, Local counts as Cluster.",
        ]
      : []),
  ],
  loopback: () => ({ led: "HNS serves it", notLed: "HNS does not redirect the node's own packets" }),
  otherSource: "host-or-source-vip",
  notTaken: (position) => (position === "node" ? "host-not-led" : "no-load-balancer"),
};

export const inspectKernelspace: ModeInspection = {
  words: WORDS,
  choice: () => "by HNS, for each connection",
  sharedPurpose: () => undefined,
  // HNS names objects only by its own IDs.
  namesOf: () => [],
  ownerTest: () => undefined,
  loadCounters: async () => ({
    isEndpointTracked: false,
    fill: async () => ["HNS does not count connections."],
  }),
  partsOf(node, kubeProxyConfig, port, endpoints) {
    const { config, facts } = planInput(kubeProxyConfig, node);
    const plan = planServicePort(port, endpoints, config, facts);
    return plan.loadBalancers.map(
      (planned): KernelPart => ({
        kind: "load balancer",
        name: planned.key,
        where: "HNS",
        purpose: `sends to ${endpointsOf(planned, rootEndpointNameOf(kubeProxyConfig))}`,
      }),
    );
  },
};

function endpointsOf({ endpoints, mapping }: PlannedLoadBalancer, root: string): string {
  if (endpoints === "root") return `the node itself (${root})`;
  return `${endpoints.join(", ")}, port ${mapping.internalPort}`;
}
