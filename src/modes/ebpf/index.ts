/**
 * The eBPF mode: connections from this node are redirected to an endpoint at connect(), and traffic without a socket on
 * this node uses the nftables rules of the flat layout. Reference ebpf.md.
 */

import type { ModeDescriptor } from "../../contract/dataplane.ts";
import type { NftablesPlanData } from "../nftables/cluster-plan.ts";
import { loopbackDeviations } from "../nftables/config.ts";
import { ebpfConfig } from "./config.ts";

declare module "../../contract/config/config.ts" {
  interface DeclaredModes {
    readonly ebpf: DeclaredSection<"ebpf", typeof ebpfConfig>;
  }
}

export const ebpf: ModeDescriptor<"ebpf", typeof ebpfConfig, NftablesPlanData> = {
  name: "ebpf",
  isUpstream: false,
  leavesUnanswered: "direct",
  config: ebpfConfig,
  startMessage: "Using eBPF Proxier",
  unavailableText: "nftables, which ebpf mode stands on, is not available on this host ",
  // The packet path uses the table of the nftables mode: its next full sync converts it.
  replacesInPlace: ["nftables"],
  hasOwnNames: true,
  renderForms: ["text", "json", "netlink", "sockets", "programs"],
  traceForms: ["json"],
  proved: [
    {
      name: "ebpf",
      deviations: (config) => [
        ...loopbackDeviations(config),
        "shares-by-slots",
        ...(["decided-at-socket", "other-ports-refused", "unallocated-dropped", "sources-first"] as const),
        ...(config.ebpf.hostNamespaceOnly ? (["pods-not-at-socket"] as const) : []),
        ...(["cluster-address-masqueraded", "hashed-by-tables"] as const),
      ],
    },
  ],
  loadTraceStages: async () => {
    const { plannedSockets } = await import("./live-sockets.ts");
    const { plannedLocalhostRelay } = await import("../nftables/planned-localhost-relay.ts");
    return (node, config) => [plannedSockets(node, config), ...plannedLocalhostRelay(node, config)];
  },
  loadRenderer: async () => (await import("./render.ts")).renderEbpf,
  loadInspection: async () => (await import("./inspect.ts")).inspectEbpf,
  loadRuntime: async () => (await import("./runtime.ts")).ebpfRuntime,
  loadCleanUp: async () => (await import("./cleanup.ts")).cleanUp,
};
