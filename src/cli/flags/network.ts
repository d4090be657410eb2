/** The flags of addresses, of the proxy mode and of local-traffic detection. Reference start.md §2.2. */
import { type AnyFlag, flag } from "../../config/flag.ts";
import { int32Type, ipPortType, ipType, stringType } from "../../config/flag-types.ts";
import { DETECT_LOCAL, GENERAL } from "../../config/v1alpha1-document.ts";
import { DEFAULT_MODE, defaultModeOn, MODES } from "../../dataplane/registry.ts";

/** `iptables, ipvs or nftables`. */
function modeNames(): string {
  const names = MODES.map(({ name }) => name);
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

const replacedBy = (name: string): string =>
  `This flag is deprecated and will be removed in a future release. Please use --${name} instead.`;

export const PROXY_MODE = GENERAL.flag({
  name: "proxy-mode",
  field: "mode",
  help: `How services are implemented: ${modeNames()}; empty means ${DEFAULT_MODE.name}, on Windows ${defaultModeOn("win32").name}.`,
});

export const DETECT_LOCAL_MODE = GENERAL.flag({
  name: "detect-local-mode",
  field: "detectLocalMode",
  help: "How traffic of local pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; empty means ClusterCIDR.",
});

export const NODEPORT_ADDRESSES = GENERAL.flag({
  name: "nodeport-addresses",
  field: "nodePortAddresses",
  help: 'Where node ports answer: prefixes, and the words "primary" (the node\'s own addresses), "localhost" and "all", in any mix. Loopback works for IPv4 in iptables mode, and for TCP in nftables mode if the list names it and the gate KubeProxyNFTablesLocalhostNodePorts is on. Empty: all addresses, but "primary" in nftables mode.',
});

export const HEALTHZ_BIND_ADDRESS = GENERAL.flag({
  name: "healthz-bind-address",
  field: "healthzBindAddress",
  type: ipPortType,
  help: "Where the health server listens: an address, with or without a port.",
});

export const METRICS_BIND_ADDRESS = GENERAL.flag({
  name: "metrics-bind-address",
  field: "metricsBindAddress",
  type: ipPortType,
  help: "Where the metrics server listens: an address, with or without a port.",
});

/** Acts while options are completed: 0 disables the server, any other port only fills in a missing one. */
export const HEALTHZ_PORT_FLAG = flag({
  name: "healthz-port",
  type: int32Type,
  initial: 10256,
  help: "The port of the health server; 0 disables it.",
  deprecated: replacedBy("healthz-bind-address"),
});

export const METRICS_PORT_FLAG = flag({
  name: "metrics-port",
  type: int32Type,
  initial: 10249,
  help: "The port of the metrics server.",
  deprecated: replacedBy("metrics-bind-address"),
});

export const NETWORK_FLAGS: readonly AnyFlag[] = [
  GENERAL.flag({
    name: "bind-address",
    field: "bindAddress",
    type: ipType,
    help: "The node's primary address, where the Node object does not tell the right one. Nothing listens on it, except in userspace mode.",
  }),
  GENERAL.flag({
    name: "bind-address-hard-fail",
    field: "bindAddressHardFail",
    help: "End the process when the health or the metrics server cannot listen, instead of trying again.",
  }),
  flag({
    name: "cluster-cidr",
    type: stringType,
    initial: "",
    help: "The prefix of all pods, or one for each IP family with a comma between; traffic from it is local in ClusterCIDR mode.",
    overlay: (config, text) => ({ ...config, detectLocal: { ...config.detectLocal, clusterCIDRs: text.split(",") } }),
  }),
  DETECT_LOCAL_MODE,
  HEALTHZ_BIND_ADDRESS,
  HEALTHZ_PORT_FLAG,
  METRICS_BIND_ADDRESS,
  METRICS_PORT_FLAG,
  NODEPORT_ADDRESSES,
  DETECT_LOCAL.flag({
    name: "pod-bridge-interface",
    field: "bridgeInterface",
    help: "The bridge of the local pods; needed in BridgeInterface mode.",
  }),
  DETECT_LOCAL.flag({
    name: "pod-interface-name-prefix",
    field: "interfaceNamePrefix",
    help: "How the names of the local pods' interfaces begin; needed in InterfaceNamePrefix mode.",
  }),
  PROXY_MODE,
];
