/** All flags of `kube-proxy`: those of the process, and those of its settings by topic. Reference start.md §2.2, §2.3. */

import type { LoggingConfig, LogOutput } from "../../../contract/config/config.ts";
import { type AnyFlag, flag, flagsIn } from "../../../contract/config/flag.ts";
import {
  boolType,
  durationType,
  int32Type,
  ipPortType,
  ipType,
  quantityType,
  stringType,
  verbosityType,
  vmoduleType,
} from "../../../contract/config/flag-types.ts";
import { ZERO_QUANTITY } from "../../../contract/config/quantity.ts";
import { CONNTRACK, DETECT_LOCAL, GENERAL } from "../../../contract/config/v1alpha1-document.ts";
import { DEFAULT_MODE, defaultModeOn, findMode, MODES, type RegisteredMode } from "../../../modes/registry.ts";
import { durationToMs } from "../../../text/duration.ts";
import { PROCESS_FLAGS, switchFlag, textFlag } from "./process.ts";

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
  help: `The proxy mode: ${modeNames()}; empty means ${DEFAULT_MODE.name}, on Windows ${defaultModeOn("win32").name}.`,
});

/** Takes effect when options are completed: 0 disables the server, any other port only fills in a missing one. */
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
    help: "The node's primary address, if the Node object does not have the right one. Nothing listens on it, except in userspace mode.",
  }),
  ...GENERAL.flags({
    bindAddressHardFail: [
      "bind-address-hard-fail",
      "Exit if the health or the metrics server cannot listen, instead of retrying.",
    ],
    detectLocalMode: [
      "detect-local-mode",
      "How traffic of local pods is detected: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; empty means ClusterCIDR.",
    ],
    nodePortAddresses: [
      "nodeport-addresses",
      'Where node ports answer: prefixes, and the words "primary" (the node\'s own addresses), "localhost" and "all", in any mix. Loopback works for IPv4 in iptables mode, and for TCP in nftables mode if the list names it and the gate KubeProxyNFTablesLocalhostNodePorts is on. Empty: all addresses, but "primary" in nftables mode.',
    ],
  }),
  textFlag({
    name: "cluster-cidr",
    help: "The CIDR of all pods, or one per IP family, comma-separated; in ClusterCIDR mode, traffic from it is local.",
    overlay: (config, text) => ({ ...config, detectLocal: { ...config.detectLocal, clusterCIDRs: text.split(",") } }),
  }),
  GENERAL.flag({
    name: "healthz-bind-address",
    field: "healthzBindAddress",
    type: ipPortType,
    help: "Where the health server listens: an address, with or without a port.",
  }),
  HEALTHZ_PORT_FLAG,
  GENERAL.flag({
    name: "metrics-bind-address",
    field: "metricsBindAddress",
    type: ipPortType,
    help: "Where the metrics server listens: an address, with or without a port.",
  }),
  METRICS_PORT_FLAG,
  ...DETECT_LOCAL.flags({
    bridgeInterface: ["pod-bridge-interface", "The bridge of the local pods; required in BridgeInterface mode."],
    interfaceNamePrefix: [
      "pod-interface-name-prefix",
      "The prefix of the local pods' interface names; required in InterfaceNamePrefix mode.",
    ],
  }),
  PROXY_MODE,
];

/** The mode whose flags set the periods of the running mode. */
const ownerOf = (mode: string): RegisteredMode => {
  const running = findMode(mode);
  return running?.config.periodFlags === undefined ? DEFAULT_MODE : running;
};

const PERIODS = { syncPeriod: "sync-period", minSyncPeriod: "min-sync-period" } as const;

/** One flag for each mode with periods of its own. */
function periodFlags(field: keyof typeof PERIODS, seconds: bigint): readonly AnyFlag[] {
  return MODES.flatMap((mode: RegisteredMode) => {
    const help = mode.config.periodFlags?.[field];
    if (help === undefined) return [];
    return flag({
      name: `${mode.name}-${PERIODS[field]}`,
      type: durationType,
      initial: seconds * 1_000_000_000n,
      help,
      overlay: (draft, time) =>
        ownerOf(draft.mode) === mode ? { ...draft, [`${field}Ms`]: durationToMs(time) } : draft,
    });
  });
}

/** The flag that sets `minSyncPeriod` for the mode. */
export function minSyncPeriodFlag(mode: string): AnyFlag | undefined {
  const name = `${ownerOf(mode).name}-${PERIODS.minSyncPeriod}`;
  return MODE_FLAGS.find((one) => one.name === name);
}

export const MODE_FLAGS: readonly AnyFlag[] = [
  ...MODES.flatMap(({ config }) => config.flags),
  ...periodFlags("syncPeriod", 30n),
  ...periodFlags("minSyncPeriod", 1n),
];

const KEEPS_KERNEL_VALUE = "0 keeps the kernel's value.";

export const KERNEL_FLAGS: readonly AnyFlag[] = [
  ...CONNTRACK.flags({
    maxPerCore: [
      "conntrack-max-per-core",
      "Tracked connections allowed for each CPU; 0 leaves the kernel's limit alone and ignores --conntrack-min.",
    ],
    min: ["conntrack-min", "The minimum number of tracked connections to allow, regardless of the number of CPUs."],
    tcpBeLiberal: [
      "conntrack-tcp-be-liberal",
      "Let connection tracking accept TCP packets outside the window (sets nf_conntrack_tcp_be_liberal).",
    ],
    tcpCloseWaitTimeout: ["conntrack-tcp-timeout-close-wait", "How long a TCP connection in CLOSE_WAIT stays tracked."],
    tcpEstablishedTimeout: [
      "conntrack-tcp-timeout-established",
      `How long an idle TCP connection stays tracked. ${KEEPS_KERNEL_VALUE}`,
    ],
    udpTimeout: ["conntrack-udp-timeout", `How long an unanswered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`],
    udpStreamTimeout: [
      "conntrack-udp-timeout-stream",
      `How long an answered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
    ],
  }),
  switchFlag({
    name: "masquerade-all",
    help: "Masquerade all traffic to cluster IPs, including that of local pods.",
    overlay: (config, masqueradeAll) => ({ ...config, masqueradeAll }),
  }),
  GENERAL.flag({
    name: "oom-score-adj",
    field: "oomScoreAdj",
    help: "The oom_score_adj of this process, -1000 to 1000.",
  }),
];

const loggingFlag = flagsIn("logging");

/** Changes the options of one log format. */
const inFormat = (format: "text" | "json", { options }: LoggingConfig, change: Partial<LogOutput>) => ({
  options: { ...options, [format]: { ...options[format], ...change } },
});

function outputFlags(format: "text" | "json"): readonly AnyFlag[] {
  return [
    loggingFlag({
      name: `log-${format}-info-buffer-size`,
      type: quantityType,
      initial: ZERO_QUANTITY,
      help: `The size of the ${format} output buffer when streams are split; 0 writes at once. Alpha: needs the gate LoggingAlphaOptions.`,
      sets: (infoBufferSize, before) => inFormat(format, before, { infoBufferSize }),
    }),
    loggingFlag({
      name: `log-${format}-split-stream`,
      type: boolType,
      initial: false,
      help: `In ${format} format, errors go to standard error and the rest to standard output. Alpha: needs the gate LoggingAlphaOptions.`,
      sets: (splitStream, before) => inFormat(format, before, { splitStream }),
    }),
  ];
}

export const LOGGING_FLAGS: readonly AnyFlag[] = [
  loggingFlag({
    name: "log-flush-frequency",
    type: durationType,
    initial: 5_000_000_000n,
    help: "The maximum time before buffered log lines are written.",
    sets: (period) => ({ flushFrequencyMs: durationToMs(period) }),
  }),
  ...outputFlags("json"),
  ...outputFlags("text"),
  loggingFlag({
    name: "logging-format",
    type: stringType,
    initial: "text",
    help: 'The format of log lines: "text" or "json".',
    sets: (format) => ({ format }),
  }),
  loggingFlag({
    name: "v",
    shorthand: "v",
    type: verbosityType,
    initial: 0,
    help: "Log verbosity: 0 life cycle, 2 syncs, 4 single events, 9 whole rulesets.",
    sets: (verbosity) => ({ verbosity }),
  }),
  loggingFlag({
    name: "vmodule",
    type: vmoduleType,
    initial: [],
    help: "Verbosity for the source files that match a pattern; text format only.",
    // Before the file's own items: the first match decides.
    sets: (items, { vmodule }) => ({ vmodule: [...items, ...vmodule] }),
  }),
];

export const FLAGS: readonly AnyFlag[] = [
  ...KERNEL_FLAGS,
  ...LOGGING_FLAGS,
  ...MODE_FLAGS,
  ...NETWORK_FLAGS,
  ...PROCESS_FLAGS,
].sort((a, b) => (a.name < b.name ? -1 : 1));
