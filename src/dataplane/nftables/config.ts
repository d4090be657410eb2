/** The settings of the nftables mode. */
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";
import { flag } from "../../config/flag.ts";
import { stringType } from "../../config/flag-types.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../config/node-port-primary.ts";
import type { ModeConfig } from "../dataplane.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";
import { LAYOUT_NAMES, type LayoutName, layoutNameOf } from "./layout-name.ts";

export interface NftablesConfig {
  readonly masqueradeBit: number;
  /** A {@link LayoutName}; another text does not pass the checks. */
  readonly layout: string;
}

/** The layout of settings that have passed the checks. Pure. */
export function layoutOf({ layout }: NftablesConfig): LayoutName {
  return layoutNameOf(layout) ?? DEFAULT_LAYOUT;
}

function layoutErrors({ layout }: NftablesConfig): readonly string[] {
  if (layoutNameOf(layout) !== undefined) return [];
  const path = `${CONFIG_ROOT}.KubeProxyNFTablesConfiguration.Layout`;
  return [invalid(path, layout, `must be ${LAYOUT_NAMES.join(" or ")}`)];
}

const [DEFAULT_LAYOUT] = LAYOUT_NAMES;

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  layout: "text",
} as const;

export const LAYOUT_FLAG = flag({
  name: "nftables-layout",
  type: stringType,
  initial: DEFAULT_LAYOUT,
  isExtension: true,
  help: "How services are laid out in nftables mode: Compatible (as upstream does it) or Flat (rules are constant, and a change costs the same however many services there are).",
  overlay: (config, layout) => ({ ...config, nftables: { ...config.nftables, layout } }),
});

export const nftablesConfig: ModeConfig<typeof FIELDS, NftablesConfig> = {
  goType: "v1alpha1.KubeProxyNFTablesConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  // Upstream's second would only delay changes here: the backend asks for the pauses that it needs, by what the kernel
  // takes for a commit (docs/performance.md).
  restWhenUnsetMs: 1,
  nodePortAddresses: [NODE_PORT_ADDRESSES_PRIMARY],
  resolve: ({ nftables }) => ({
    masqueradeBit: nftables.masqueradeBit ?? DEFAULT_MASQUERADE_BIT,
    layout: nftables.layout === "" ? DEFAULT_LAYOUT : nftables.layout,
  }),
  errors: ({ mode, nftables }) =>
    mode === "nftables"
      ? [...masqueradeBitErrors("KubeProxyNFTablesConfiguration", nftables.masqueradeBit), ...layoutErrors(nftables)]
      : [],
  encode: ({ nftables }, { masqueradeAll, periods }) => ({
    masqueradeBit: nftables.masqueradeBit,
    masqueradeAll,
    ...periods,
    // Upstream does not know the field: it is written only where it says something.
    ...(layoutOf(nftables) === DEFAULT_LAYOUT ? {} : { layout: layoutOf(nftables) }),
  }),
  flags: [LAYOUT_FLAG],
};
