/** The settings of the iptables mode. Modes without their own section also use its periods and `masqueradeAll`. */
import type { SettingsOf } from "../../contract/config/document-fields.ts";
import { Section } from "../../contract/config/section.ts";
import type { ModeConfig } from "../../contract/dataplane.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";

const FIELDS = {
  /** The bit of the packet mark that requests masquerading, 0 to 31; modes without their own also use it. */
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  localhostNodePorts: "optionalBool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
} as const;

export type IptablesConfig = SettingsOf<typeof FIELDS>;

const section = new Section("iptables", FIELDS, { masqueradeBit: DEFAULT_MASQUERADE_BIT, localhostNodePorts: true });

export const iptablesConfig: ModeConfig<typeof FIELDS, IptablesConfig> = {
  goType: "v1alpha1.KubeProxyIPTablesConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  // The backend requests pauses according to how long the tool takes (docs/notes/performance-diary.md).
  restWhenUnsetMs: 1,
  resolve: ({ iptables }) => section.resolve(iptables),
  errors: ({ iptables }) => masqueradeBitErrors("KubeProxyIPTablesConfiguration", iptables.masqueradeBit),
  encode: ({ iptables }, shared) => section.encode(iptables, shared),
  periodFlags: {
    syncPeriod: "The maximum time between retries and between checks of the rules. Used by every mode but ipvs.",
    minSyncPeriod:
      "The minimum time between two syncs of the rules; 0: sync on every change. Used by every mode but ipvs.",
  },
  flags: section.flags({
    localhostNodePorts: ["iptables-localhost-nodeports", "Answer node ports on 127.0.0.1 too (iptables mode, IPv4)."],
    masqueradeBit: [
      "iptables-masquerade-bit",
      "The bit of the packet mark that requests masquerading, 0 to 31 (iptables and ipvs modes).",
    ],
  }),
};
