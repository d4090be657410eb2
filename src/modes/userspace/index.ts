/** The userspace mode: the proxy carries the bytes itself. Upstream removed it in v1.26. Reference userspace.md §1. */

import { LONGEST_TIMEOUT_MS } from "../../async/clock.ts";
import type { ModeDescriptor } from "../../contract/dataplane.ts";
import { KEEPS_RULES } from "../../contract/stop-policy.ts";
import type { UserspacePlanData } from "./cluster-plan.ts";
import { userspaceConfig } from "./config.ts";

declare module "../../contract/config/config.ts" {
  interface DeclaredModes {
    readonly userspace: DeclaredSection<"userspace", typeof userspaceConfig>;
  }
}

export const userspace: ModeDescriptor<"userspace", typeof userspaceConfig, UserspacePlanData> = {
  name: "userspace",
  platforms: ["linux", "win32"],
  isUpstream: false,
  config: userspaceConfig,
  startMessage: "Using userspace Proxier.",
  unavailableText: "iptables is not available on this host; --userspace-rules=none goes without ",
  hasOwnNames: true,
  usesNetfilter: ({ userspace: { rules } }) => rules !== "none",
  stopPolicy: ({ userspace: { drainTimeoutMs } }) => ({
    message: "Stopping; accepting no new connections, and waiting for open ones to end",
    limitMs: Math.min(KEEPS_RULES.limitMs + drainTimeoutMs, LONGEST_TIMEOUT_MS),
  }),
  renderForms: ["text", "json", "iptables-save"],
  traceForms: ["tables"],
  proved: [
    {
      name: "userspace",
      sign: /^:KUBE-PORTALS-CONTAINER /m,
      deviations: () => [
        "sctp-unserved",
        "proxy-connects",
        "own-external-left",
        "bridged-external-left",
        "proxy-ports-answer",
        "loopback-served",
        "barred-left",
        "own-external-serves",
        "external-opens-balancer",
        "node-port-opens-balancer",
      ],
    },
  ],
  loadTraceStages: async () => {
    const { plannedTables } = await import("./cluster-plan.ts");
    const { relayChain } = await import("../../contract/relay-chain.ts");
    return (node, config) => {
      const { relays } = plannedTables(node, config);
      return [relayChain(relays, config.userspace.rules === "iptables", config.balancing.seed)];
    };
  },
  loadRenderer: async () => (await import("./cluster-plan.ts")).renderUserspace,
  loadInspection: async () => (await import("./inspect.ts")).inspectUserspace,
  loadRuntime: async () => (await import("./runtime.ts")).userspaceRuntime,
  loadCleanUp: async () => (await import("./cleanup.ts")).cleanUp,
};
