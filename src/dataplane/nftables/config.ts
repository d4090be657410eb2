/** The settings of the nftables mode. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { SettingsOf } from "../../config/document-fields.ts";
import { gatesOf, LOCALHOST_NODE_PORTS_GATE } from "../../config/feature-gates.ts";
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";
import { NODE_PORT_ADDRESSES_PRIMARY } from "../../config/node-port-words.ts";
import { Section } from "../../config/section.ts";
import type { ModeConfig } from "../dataplane.ts";
import type { Deviation } from "../deviations.ts";
import { DEFAULT_MASQUERADE_BIT, masqueradeBitErrors } from "../shared/masquerade-bit.ts";
import { LAYOUT_NAMES, type LayoutName, layoutNameOf } from "./layout-name.ts";

/** How node ports are served on loopback addresses: by upstream's relay if its gate is on, or by a fuller one. */
const LOCALHOST_NODE_PORTS = ["Upstream", "Extended"] as const;

const [DEFAULT_LAYOUT] = LAYOUT_NAMES;

const FIELDS = {
  masqueradeBit: "optionalInt32",
  masqueradeAll: "bool",
  syncPeriod: "duration",
  minSyncPeriod: "duration",
  /** A {@link LayoutName}, once validated. */
  layout: "text",
  /** One of {@link LOCALHOST_NODE_PORTS}, once validated. */
  localhostNodePorts: "text",
} as const;

export type NftablesConfig = SettingsOf<typeof FIELDS>;

const section = new Section("nftables", FIELDS, {
  masqueradeBit: DEFAULT_MASQUERADE_BIT,
  layout: DEFAULT_LAYOUT,
  localhostNodePorts: LOCALHOST_NODE_PORTS[0],
});

/** The layout of validated settings. */
export function layoutOf({ layout }: NftablesConfig): LayoutName {
  return layoutNameOf(layout) ?? DEFAULT_LAYOUT;
}

function wordErrors({ layout, localhostNodePorts }: NftablesConfig): readonly string[] {
  const path = `${CONFIG_ROOT}.KubeProxyNFTablesConfiguration`;
  const words = [
    [`${path}.Layout`, layout, LAYOUT_NAMES],
    [`${path}.LocalhostNodePorts`, localhostNodePorts, LOCALHOST_NODE_PORTS],
  ] as const;
  return words.flatMap(([field, word, known]) =>
    known.some((one) => one === word) ? [] : [invalid(field, word, `must be ${known.join(" or ")}`)],
  );
}

/** The documented deviations of node ports on loopback addresses, for `prove`. */
export function loopbackDeviations(config: KubeProxyConfig): readonly Deviation[] {
  if (config.nftables.localhostNodePorts === "Extended") return ["loopback-relayed-extended"];
  return gatesOf(config).isEnabled(LOCALHOST_NODE_PORTS_GATE) ? ["loopback-relayed"] : [];
}

export const LAYOUT_FLAG = section.flag({
  name: "nftables-layout",
  field: "layout",
  isExtension: true,
  help: "The table layout of nftables mode: Compatible (as upstream) or Flat (constant rules; the cost of a change does not grow with the number of Services).",
});

const LOCALHOST_FLAG = section.flag({
  name: "nftables-localhost-nodeports",
  field: "localhostNodePorts",
  isExtension: true,
  help: "How nftables mode serves node ports on loopback addresses that --nodeport-addresses names: Upstream (its relay for TCP, if the feature gate KubeProxyNFTablesLocalhostNodePorts is on) or Extended (TCP and UDP, with or without the gate; a second endpoint is tried; connections may finish when the process stops).",
});

export const nftablesConfig: ModeConfig<typeof FIELDS, NftablesConfig> = {
  goType: "v1alpha1.KubeProxyNFTablesConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  // Upstream's second would only delay changes: the backend requests the pauses it needs, based on the kernel's commit
  // time (docs/performance.md).
  restWhenUnsetMs: 1,
  nodePortAddresses: [NODE_PORT_ADDRESSES_PRIMARY],
  resolve: ({ nftables }) => section.resolve(nftables),
  errors: ({ mode, nftables }) =>
    mode === "nftables"
      ? [...masqueradeBitErrors("KubeProxyNFTablesConfiguration", nftables.masqueradeBit), ...wordErrors(nftables)]
      : [],
  encode({ nftables }, shared) {
    const { masqueradeBit, ...own } = section.encodeSet({ ...nftables, layout: layoutOf(nftables) });
    const { layout, localhostNodePorts, ...upstreams } = section.encode(nftables, shared);
    // Upstream does not know our fields, so they are written only if set.
    return { ...upstreams, ...own };
  },
  flags: [LAYOUT_FLAG, LOCALHOST_FLAG],
};
