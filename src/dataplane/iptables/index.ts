/** The iptables mode: rules of iptables and ip6tables, either back end. Reference iptables.md. */
import type { ModeDescriptor } from "../dataplane.ts";
import { TRANSLATES_IN_KERNEL } from "../traits.ts";
import { iptablesConfig } from "./config.ts";

export const iptables: ModeDescriptor<"iptables", typeof iptablesConfig> = {
  name: "iptables",
  isUpstream: true,
  config: iptablesConfig,
  startMessage: "Using iptables Proxier",
  unavailableText: "iptables is not available on this host ",
  traits: {
    ...TRANSLATES_IN_KERNEL,
    localhostNodePorts: ["TCP", "UDP", "SCTP"],
    refusesNodeAtExternalAddresses: false,
  },
  renderForms: ["text", "json", "iptables-save"],
  traceForms: ["tables"],
  loadRenderer: async () => (await import("./render.ts")).renderIptables,
  loadInspection: async () => (await import("./inspect.ts")).inspectIptables,
  loadRuntime: async () => (await import("./runtime.ts")).iptablesRuntime,
};
