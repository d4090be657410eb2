/**
 * The eBPF mode: connections from this node end at an endpoint when they are made, and what has no socket here takes the nftables
 * rules of the flat layout. Reference ebpf.md.
 */
import type { ModeDescriptor } from "../dataplane.ts";
import { TRANSLATES_IN_KERNEL } from "../traits.ts";
import { ebpfConfig, PACKET_PATH_FLAG } from "./config.ts";

export const ebpf: ModeDescriptor<"ebpf", typeof ebpfConfig> = {
  name: "ebpf",
  isUpstream: false,
  config: ebpfConfig,
  renderFlags: [PACKET_PATH_FLAG],
  startMessage: "Using eBPF Proxier",
  unavailableText: "nftables, which ebpf mode stands on, is not available on this host ",
  traits: { ...TRANSLATES_IN_KERNEL, checksSourcesFirst: true, decidesAtSocket: ["TCP", "UDP"] },
  // The packet path is the table of the nftables mode: its next full sync makes the difference.
  replacesInPlace: ["nftables"],
  hasOwnNames: true,
  renderForms: ["text", "json", "netlink", "sockets", "programs"],
  traceForms: ["json"],
  loadRenderer: async () => (await import("./render.ts")).renderEbpf,
  loadInspection: async () => (await import("./inspect.ts")).inspectEbpf(),
  loadRuntime: async () => (await import("./runtime.ts")).ebpfRuntime,
};
