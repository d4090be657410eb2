/** The iptables mode: rules of iptables and ip6tables, with either back end. Reference iptables.md. */

import type { ModeDescriptor } from "../../contract/dataplane.ts";
import type { IptablesPlanData } from "./cluster-plan.ts";
import { iptablesConfig } from "./config.ts";

declare module "../../contract/config/config.ts" {
  interface DeclaredModes {
    readonly iptables: DeclaredSection<"iptables", typeof iptablesConfig>;
  }
}

export const iptables: ModeDescriptor<"iptables", typeof iptablesConfig, IptablesPlanData> = {
  name: "iptables",
  isUpstream: true,
  leavesUnanswered: "translated",
  hashes: "in-turn",
  config: iptablesConfig,
  startMessage: "Using iptables Proxier",
  unavailableText: "iptables is not available on this host ",
  renderForms: ["text", "json", "iptables-save"],
  traceForms: ["tables"],
  proved: [
    {
      name: "iptables",
      sign: /^:KUBE-NODEPORTS /m,
      deviations: ({ iptables: { localhostNodePorts } }) => [
        ...(localhostNodePorts ? (["loopback-node-ports"] as const) : []),
        ...([
          "hashed-in-order",
          "refused-at-every-address",
          "own-external-serves",
          "own-not-refused",
          "hairpin-anywhere",
          "external-opens-balancer",
          "node-port-opens-balancer",
        ] as const),
      ],
    },
  ],
  loadRenderer: async () => (await import("./cluster-plan.ts")).renderIptables,
  loadInspection: async () => (await import("./inspect.ts")).inspectIptables,
  loadRuntime: async () => (await import("./runtime.ts")).iptablesRuntime,
  loadCleanUp: async () => (await import("./cleanup.ts")).cleanUp,
};
