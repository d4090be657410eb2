/** The nftables mode: a table of its own per family, programmed over netlink. Reference nftables.md. */
import type { ModeDescriptor } from "../dataplane.ts";
import { TRANSLATES_IN_KERNEL } from "../traits.ts";
import { LAYOUT_FLAG, nftablesConfig } from "./config.ts";

export const nftables: ModeDescriptor<"nftables", typeof nftablesConfig> = {
  name: "nftables",
  isUpstream: true,
  config: nftablesConfig,
  startMessage: "Using nftables Proxier",
  unavailableText: "nftables is not available on this host ",
  hasOwnNames: true,
  traits: { ...TRANSLATES_IN_KERNEL, checksSourcesFirst: true },
  renderFlags: [LAYOUT_FLAG],
  renderForms: ["text", "json", "netlink"],
  traceForms: ["json"],
  loadRenderer: async () => (await import("./render.ts")).renderNftables,
  loadInspection: async () => (await import("./inspect.ts")).inspectNftables,
  loadRuntime: async () => (await import("./runtime.ts")).nftablesRuntime,
};
