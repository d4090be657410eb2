/** The settings of the kernelspace mode: the section `winkernel`. Reference windows.md §1.1. */
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";
import { flagsIn } from "../../config/flag.ts";
import { boolType, stringType } from "../../config/flag-types.ts";
import { parseIpAddress } from "../../net/ip.ts";
import type { ModeConfig } from "../dataplane.ts";

export interface WinkernelConfig {
  /** Empty: the environment variable `KUBE_NETWORK`. */
  readonly networkName: string;
  /** Empty: on an overlay, the one that the CNI plugin has reserved on this node. */
  readonly sourceVip: string;
  readonly enableDSR: boolean;
  /** Empty: {@link ROOT_ENDPOINT_NAME}. */
  readonly rootHnsEndpointName: string;
  readonly forwardHealthCheckVip: boolean;
}

const FIELDS = {
  networkName: "text",
  sourceVip: "text",
  enableDSR: "bool",
  rootHnsEndpointName: "text",
  forwardHealthCheckVip: "bool",
} as const;

export const ROOT_ENDPOINT_NAME = "cbr0";

const winkernelFlag = flagsIn("winkernel");

export const winkernelConfig: ModeConfig<typeof FIELDS, WinkernelConfig> = {
  goType: "v1alpha1.KubeProxyWinkernelConfiguration",
  fields: FIELDS,
  minSyncPeriodMs: 1_000,
  resolve: ({ winkernel }) => winkernel,
  // Upstream finds out when HNS refuses it.
  errors({ mode, winkernel: { sourceVip } }) {
    if (mode !== "kernelspace" || sourceVip === "" || parseIpAddress(sourceVip) !== undefined) return [];
    return [
      invalid(`${CONFIG_ROOT}.KubeProxyWinkernelConfiguration.SourceVip`, sourceVip, "must be a valid IP address"),
    ];
  },
  encode: ({ winkernel }) => ({ ...winkernel }),
  flags: [
    winkernelFlag({
      name: "enable-dsr",
      type: boolType,
      initial: false,
      help: "In kernelspace mode (Windows), answer clients of cluster IPs directly (Direct Server Return).",
      isExtension: true,
      sets: (enableDSR) => ({ enableDSR }),
    }),
    winkernelFlag({
      name: "forward-healthcheck-vip",
      type: boolType,
      initial: false,
      help: "In kernelspace mode (Windows), lead health checks at load-balancer addresses to this node.",
      isExtension: true,
      sets: (forwardHealthCheckVip) => ({ forwardHealthCheckVip }),
    }),
    winkernelFlag({
      name: "network-name",
      type: stringType,
      initial: "",
      help: "In kernelspace mode (Windows), the HNS network of the pods; empty means the environment variable KUBE_NETWORK.",
      isExtension: true,
      sets: (networkName) => ({ networkName }),
    }),
    winkernelFlag({
      name: "root-hnsendpoint-name",
      type: stringType,
      initial: "",
      help: "In kernelspace mode (Windows), the HNS endpoint of the node itself, for --forward-healthcheck-vip; empty means cbr0.",
      isExtension: true,
      sets: (rootHnsEndpointName) => ({ rootHnsEndpointName }),
    }),
    winkernelFlag({
      name: "source-vip",
      type: stringType,
      initial: "",
      help: "In kernelspace mode (Windows) on an overlay network, the address from which the node reaches pods; empty means the one that the CNI plugin has reserved on the node.",
      isExtension: true,
      sets: (sourceVip) => ({ sourceVip }),
    }),
  ],
};
