/** The settings of the kernelspace mode: the section `winkernel`. Reference windows.md §1.1. */
import type { SettingsOf } from "../../contract/config/document-fields.ts";
import { CONFIG_ROOT, invalid } from "../../contract/config/field-error.ts";
import { Section } from "../../contract/config/section.ts";
import type { ModeConfig } from "../../contract/dataplane.ts";
import { parseIpAddress } from "../../net/ip.ts";

const FIELDS = {
  /** Empty: the environment variable `KUBE_NETWORK`. */
  networkName: "text",
  /** Empty: on an overlay, the one that the CNI plugin reserved on this node. */
  sourceVip: "text",
  enableDSR: "bool",
  /** Empty: {@link ROOT_ENDPOINT_NAME}. */
  rootHnsEndpointName: "text",
  forwardHealthCheckVip: "bool",
} as const;

export type WinkernelConfig = SettingsOf<typeof FIELDS>;

export const ROOT_ENDPOINT_NAME = "cbr0";

const section = new Section("winkernel", FIELDS, {
  ...{ networkName: "", sourceVip: "", enableDSR: false, rootHnsEndpointName: "", forwardHealthCheckVip: false },
});

export const winkernelConfig: ModeConfig<typeof FIELDS, WinkernelConfig> = {
  goType: "v1alpha1.KubeProxyWinkernelConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  resolve: ({ winkernel }) => section.resolve(winkernel),
  // Upstream notices only when HNS rejects it.
  errors({ mode, winkernel: { sourceVip } }) {
    if (mode !== "kernelspace" || sourceVip === "" || parseIpAddress(sourceVip) !== undefined) return [];
    return [
      invalid(`${CONFIG_ROOT}.KubeProxyWinkernelConfiguration.SourceVip`, sourceVip, "must be a valid IP address"),
    ];
  },
  encode: ({ winkernel }) => section.encode(winkernel),
  flags: section.flags(
    {
      enableDSR: [
        "enable-dsr",
        "In kernelspace mode (Windows), answer clients of cluster IPs directly (Direct Server Return).",
      ],
      forwardHealthCheckVip: [
        "forward-healthcheck-vip",
        "In kernelspace mode (Windows), forward health checks at load-balancer addresses to this node.",
      ],
      networkName: [
        "network-name",
        "In kernelspace mode (Windows), the HNS network of the pods; empty means the environment variable KUBE_NETWORK.",
      ],
      rootHnsEndpointName: [
        "root-hnsendpoint-name",
        "In kernelspace mode (Windows), the HNS endpoint of the node itself, for --forward-healthcheck-vip; empty means cbr0.",
      ],
      sourceVip: [
        "source-vip",
        "In kernelspace mode (Windows) on an overlay network, the address from which the node reaches pods; empty means the one that the CNI plugin reserved on the node.",
      ],
    },
    { isExtension: true },
  ),
};
