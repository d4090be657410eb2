/** The settings of the nftables mode. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { SettingsOf } from "../../contract/config/document-fields.ts";
import { gatesOf, LOCALHOST_NODE_PORTS_GATE } from "../../contract/config/feature-gates.ts";
import { CONFIG_ROOT, invalid } from "../../contract/config/field-error.ts";
import { flag } from "../../contract/config/flag.ts";
import { stringType } from "../../contract/config/flag-types.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../contract/config/node-port-words.ts";
import { Section } from "../../contract/config/section.ts";
import type { ModeConfig } from "../../contract/dataplane.ts";
import type { Deviation } from "../../contract/deviations.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";
import { LAYOUT_NAMES, type LayoutName, layoutNameOf } from "./layout-name.ts";

const [DEFAULT_LAYOUT] = LAYOUT_NAMES;

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  /** A {@link LayoutName}, once validated. */
  layout: "text",
} as const;

/** A field of earlier versions: see `notice`. */
const GONE_FIELDS = { localhostNodePorts: "text" } as const;

export type NftablesConfig = SettingsOf<typeof FIELDS>;

const section = new Section("nftables", FIELDS, {
  masqueradeBit: DEFAULT_MASQUERADE_BIT,
  layout: DEFAULT_LAYOUT,
});

/** The layout of validated settings. */
export function layoutOf({ layout }: NftablesConfig): LayoutName {
  return layoutNameOf(layout) ?? DEFAULT_LAYOUT;
}

function layoutErrors({ layout }: NftablesConfig): readonly string[] {
  if (layoutNameOf(layout) !== undefined) return [];
  return [
    invalid(`${CONFIG_ROOT}.KubeProxyNFTablesConfiguration.Layout`, layout, `must be ${LAYOUT_NAMES.join(" or ")}`),
  ];
}

/** The documented deviations of node ports on loopback addresses, for `prove`. */
export function loopbackDeviations(config: KubeProxyConfig): readonly Deviation[] {
  return gatesOf(config).isEnabled(LOCALHOST_NODE_PORTS_GATE) ? ["loopback-relayed"] : [];
}

export const LAYOUT_FLAG = section.flag({
  name: "nftables-layout",
  field: "layout",
  isExtension: true,
  help: "The table layout of nftables mode: Compatible (as upstream) or Flat (constant rules; the cost of a change does not grow with the number of Services).",
});

const USES_GATE = `the feature gate ${LOCALHOST_NODE_PORTS_GATE} serves TCP at node ports on loopback addresses, and nothing serves UDP there`;

export const nftablesConfig: ModeConfig<typeof FIELDS & typeof GONE_FIELDS, NftablesConfig> = {
  goType: "v1alpha1.KubeProxyNFTablesConfiguration",
  fields: { ...FIELDS, ...GONE_FIELDS },
  minSyncPeriodMs: 1_000,
  // Upstream's second would only delay changes: the backend requests the pauses it needs, based on the kernel's commit
  // time (docs/notes/performance-diary.md).
  restWhenUnsetMs: 1,
  nodePortAddresses: [NODE_PORT_ADDRESSES_PRIMARY],
  resolve: ({ nftables }) => section.resolve(nftables),
  errors: ({ mode, nftables }) =>
    mode === "nftables"
      ? [...masqueradeBitErrors("KubeProxyNFTablesConfiguration", nftables.masqueradeBit), ...layoutErrors(nftables)]
      : [],
  notice: ({ nftables }) =>
    nftables.localhostNodePorts.toLowerCase() === "extended"
      ? `nftables.localhostNodePorts: Extended has been removed: ${USES_GATE}`
      : undefined,
  encode({ nftables }, shared) {
    const { masqueradeBit, ...own } = section.encodeSet({ ...nftables, layout: layoutOf(nftables) });
    const { layout, ...upstreams } = section.encode(nftables, shared);
    // Upstream does not know our fields, so they are written only if set.
    return { ...upstreams, ...own };
  },
  flags: [
    LAYOUT_FLAG,
    flag({
      ...{ name: "nftables-localhost-nodeports", type: stringType, initial: "", isExtension: true, help: "Removed." },
      deprecated: `It has no effect: ${USES_GATE}.`,
    }),
  ],
};
