/** The settings of the iptables mode. Periods and `masqueradeAll` of its section also serve modes without their own. */
import { flagsIn } from "../../config/flag.ts";
import { boolType, int32Type } from "../../config/flag-types.ts";
import type { ModeConfig } from "../dataplane.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";

export interface IptablesConfig {
  /** The bit of the packet mark that asks for masquerading, 0 to 31; modes without their own use it too. */
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
}

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  localhostNodePorts: "optionalBool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
} as const;

const iptablesFlag = flagsIn("iptables");

export const iptablesConfig: ModeConfig<typeof FIELDS, IptablesConfig> = {
  goType: "v1alpha1.KubeProxyIPTablesConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  // The backend asks for the pauses that it needs, by what the tool takes (docs/performance.md).
  restWhenUnsetMs: 1,
  resolve: ({ iptables }) => ({
    masqueradeBit: iptables.masqueradeBit ?? DEFAULT_MASQUERADE_BIT,
    localhostNodePorts: iptables.localhostNodePorts ?? true,
  }),
  errors: ({ iptables }) => masqueradeBitErrors("KubeProxyIPTablesConfiguration", iptables.masqueradeBit),
  encode: ({ iptables }, { masqueradeAll, periods }) => ({
    masqueradeBit: iptables.masqueradeBit,
    masqueradeAll,
    localhostNodePorts: iptables.localhostNodePorts,
    ...periods,
  }),
  periodFlags: {
    syncPeriod: "The longest time between retries and between checks of the rules. Used by every mode but ipvs.",
    minSyncPeriod:
      "The least time between two syncs of the rules; 0 syncs at every change. Used by every mode but ipvs.",
  },
  flags: [
    iptablesFlag({
      name: "iptables-localhost-nodeports",
      type: boolType,
      initial: true,
      help: "Answer node ports on 127.0.0.1 too (iptables mode, IPv4).",
      sets: (localhostNodePorts) => ({ localhostNodePorts }),
    }),
    iptablesFlag({
      name: "iptables-masquerade-bit",
      type: int32Type,
      initial: DEFAULT_MASQUERADE_BIT,
      help: "The bit of the packet mark that asks for masquerading, 0 to 31 (iptables and ipvs modes).",
      sets: (masqueradeBit) => ({ masqueradeBit }),
    }),
  ],
};
