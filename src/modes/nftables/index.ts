/** The nftables mode: a table of its own per family, programmed over netlink. Reference nftables.md. */

import type { ModeDescriptor } from "../../contract/dataplane.ts";
import type { NftablesPlanData } from "./cluster-plan.ts";
import { LAYOUT_FLAG, loopbackDeviations, nftablesConfig } from "./config.ts";
import { LAYOUT_NAMES } from "./layout-name.ts";

declare module "../../contract/config/config.ts" {
  interface DeclaredModes {
    readonly nftables: DeclaredSection<"nftables", typeof nftablesConfig>;
  }
}

export const nftables: ModeDescriptor<"nftables", typeof nftablesConfig, NftablesPlanData> = {
  name: "nftables",
  isUpstream: true,
  leavesUnanswered: "translated",
  config: nftablesConfig,
  startMessage: "Using nftables Proxier",
  unavailableText: "nftables is not available on this host ",
  hasOwnNames: true,
  renderFlags: [LAYOUT_FLAG],
  renderForms: ["text", "json", "netlink"],
  traceForms: ["json"],
  proved: LAYOUT_NAMES.map((layout) => ({
    name: layout === "Flat" ? "flat" : "nftables",
    // The first sign that fits counts, and both layouts have the chain services.
    sign: layout === "Flat" ? /^kube-proxy services$/m : /^kube-proxy reject-chain$/m,
    choose: (draft) => ({ ...draft, nftables: { ...draft.nftables, layout } }),
    deviations: (config) => [
      ...loopbackDeviations(config),
      ...(layout === "Flat" ? (["shares-by-slots"] as const) : []),
      ...(["other-ports-refused", "unallocated-dropped", "sources-first", "cluster-address-masqueraded"] as const),
      "hashed-by-tables",
    ],
  })),
  loadTraceStages: async () => (await import("./planned-localhost-relay.ts")).plannedLocalhostRelay,
  loadRenderer: async () => (await import("./cluster-plan.ts")).renderNftables,
  loadInspection: async () => (await import("./inspect.ts")).inspectNftables,
  loadRuntime: async () => (await import("./runtime.ts")).nftablesRuntime,
  loadCleanUp: async () => (await import("./cleanup.ts")).cleanUp,
};
