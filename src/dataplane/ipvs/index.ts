/** The ipvs mode: virtual servers of the kernel, IP sets, a constant few iptables rules. Reference ipvs.md. */
import type { ModeDescriptor } from "../dataplane.ts";
import { TRANSLATES_IN_KERNEL } from "../traits.ts";
import { ipvsConfig } from "./config.ts";

export const ipvs: ModeDescriptor<"ipvs", typeof ipvsConfig> = {
  name: "ipvs",
  isUpstream: true,
  config: ipvsConfig,
  startMessage: "Using ipvs Proxier",
  unavailableText: "iptables is not available on this host ",
  deprecation: {
    message:
      "The ipvs proxier is now deprecated and may be removed in a future release. Please use 'nftables' instead.",
    reason: "IPVSDeprecation",
  },
  replacesInPlace: ["iptables"],
  // Its rules refer to chains that the iptables mode has, too.
  cleanUpBefore: ["iptables"],
  traits: { ...TRANSLATES_IN_KERNEL, hasVirtualServers: true },
  renderForms: ["text", "json", "iptables-save", "ip", "ipset", "ipvsadm", "iptables"],
  traceForms: ["iptables-save", "ipset", "ipvsadm", "ip"],
  loadRenderer: async () => (await import("./render.ts")).renderIpvs,
  loadInspection: async () => (await import("./inspect.ts")).inspectIpvs,
  loadRuntime: async () => (await import("./runtime.ts")).ipvsRuntime,
};
