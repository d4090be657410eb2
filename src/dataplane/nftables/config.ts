/** The settings of the nftables mode. */
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../config/node-port-primary.ts";
import type { ModeConfig } from "../dataplane.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";

export interface NftablesConfig {
  readonly masqueradeBit: number;
}

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
} as const;

export const nftablesConfig: ModeConfig<typeof FIELDS, NftablesConfig> = {
  goType: "v1alpha1.KubeProxyNFTablesConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  // Upstream's second would only delay changes here: the backend asks for the pauses that it needs, by what the kernel
  // takes for a commit (docs/performance.md).
  restWhenUnsetMs: 1,
  nodePortAddresses: [NODE_PORT_ADDRESSES_PRIMARY],
  resolve: ({ nftables }) => ({ masqueradeBit: nftables.masqueradeBit ?? DEFAULT_MASQUERADE_BIT }),
  errors: ({ mode, nftables }) =>
    mode === "nftables" ? masqueradeBitErrors("KubeProxyNFTablesConfiguration", nftables.masqueradeBit) : [],
  encode: ({ nftables }, { masqueradeAll, periods }) => ({
    masqueradeBit: nftables.masqueradeBit,
    masqueradeAll,
    ...periods,
  }),
  flags: [],
};
