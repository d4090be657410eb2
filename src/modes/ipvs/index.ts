/** The ipvs mode: virtual servers of the kernel, IP sets, and a constant few iptables rules. Reference ipvs.md. */

import type { ModeDescriptor } from "../../contract/dataplane.ts";
import type { IpvsPlanData } from "./cluster-plan.ts";
import { ipvsConfig } from "./config.ts";
import { DUMMY_DEVICE } from "./names.ts";

declare module "../../contract/config/config.ts" {
  interface DeclaredModes {
    readonly ipvs: DeclaredSection<"ipvs", typeof ipvsConfig>;
  }
}

export const ipvs: ModeDescriptor<"ipvs", typeof ipvsConfig, IpvsPlanData> = {
  name: "ipvs",
  isUpstream: true,
  hashes: "in-kernel",
  gate: "KubeProxyIPVS",
  config: ipvsConfig,
  startMessage: "Using ipvs Proxier",
  unavailableText: "iptables is not available on this host ",
  deprecation: {
    message:
      "The ipvs proxier is now deprecated and may be removed in a future release. Please use 'nftables' instead.",
    reason: "IPVSDeprecation",
  },
  replacesInPlace: ["iptables"],
  // Its rules refer to chains that the iptables mode also uses.
  cleanUpBefore: ["iptables"],
  ownDevice: DUMMY_DEVICE,
  renderForms: ["text", "json", "iptables-save", "ip", "ipset", "ipvsadm", "iptables"],
  traceForms: ["iptables-save", "ipset", "virtual-servers", "ip"],
  proved: [
    {
      name: "ipvs",
      sign: /^:KUBE-LOAD-BALANCER /m,
      deviations: () => [
        "bound-ports-refused",
        "unserved-node-ports-masqueraded",
        "loopback-source-kept",
        "local-falls-back",
        "hairpin-of-unused",
        "own-endpoint-masqueraded",
        "local-binds-node",
        "own-barred-at-balancer",
        "own-external-decides",
        "others-addresses-left",
        "masqueraded-by-source",
      ],
    },
  ],
  loadDumpReader: async () => (await import("./walk-virtual-servers.ts")).virtualServerReader,
  loadRenderer: async () => (await import("./cluster-plan.ts")).renderIpvs,
  loadInspection: async () => (await import("./inspect.ts")).inspectIpvs,
  loadRuntime: async () => (await import("./runtime.ts")).ipvsRuntime,
  loadCleanUp: async () => (await import("./cleanup.ts")).cleanUp,
};
