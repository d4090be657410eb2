/** All flags of `kube-proxy`, by topic. Reference start.md §2.2, §2.3. */

import type { LoggingConfig, LogOutput } from "../../config/config.ts";
import { type AnyFlag, type Flag, type FlagSpec, flag, flagsIn } from "../../config/flag.ts";
import {
  boolType,
  durationType,
  type FlagType,
  int32Type,
  ipPortType,
  ipType,
  quantityType,
  stringType,
  verbosityType,
  vmoduleType,
} from "../../config/flag-types.ts";
import { ZERO_QUANTITY } from "../../config/quantity.ts";
import { CURRENT_RELEASE, releaseNames } from "../../config/release.ts";
import { CLIENT_CONNECTION, CONNTRACK, DETECT_LOCAL, GENERAL, SELDOM } from "../../config/v1alpha1-document.ts";
import { DEFAULT_MODE, defaultModeOn, findMode, MODES, type RegisteredMode } from "../../dataplane/registry.ts";
import { durationToMs } from "../../text/duration.ts";
import { parsed, parseGoBool, quoteGo, refused } from "../../text/go-text.ts";

type PlainSpec<T> = Omit<FlagSpec<T>, "type" | "initial">;

/** A flag whose text is empty where it is not given. @param spec.word in the help in place of `string` */
const textFlag = ({ word = stringType.word, ...spec }: PlainSpec<string> & { readonly word?: string }): Flag<string> =>
  flag({ ...spec, type: { ...stringType, word }, initial: "" });

const switchFlag = (spec: PlainSpec<boolean>): Flag<boolean> => flag({ ...spec, type: boolType, initial: false });

/** What `--version` asks for, and the version that is reported from then on. */
interface VersionRequest {
  readonly print: "none" | "short" | "raw";
  /** Undefined: that of the release that is copied. */
  readonly gitVersion: string | undefined;
}

const RELEASE = /^v(\d+\.\d+\.\d+)(?:[-+].*)?$/;

const versionType: FlagType<VersionRequest> = {
  word: "version[=true]",
  bareText: "true",
  read: (text, soFar) => {
    if (text === "raw") return parsed({ ...soFar, print: "raw" });
    if (text.startsWith("v")) {
      return RELEASE.exec(text)?.[1] === RELEASE.exec(CURRENT_RELEASE.version)?.[1]
        ? parsed({ ...soFar, gitVersion: text })
        : refused(
            `version ${quoteGo(text)} must match major/minor/patch of default version ${quoteGo(CURRENT_RELEASE.version)}`,
          );
    }
    const wanted = parseGoBool(text);
    return wanted.ok ? parsed({ ...soFar, print: wanted.value ? "short" : "none" }) : refused(wanted.error);
  },
  format: ({ print }) => ({ none: "false", short: "true", raw: "raw" })[print],
};

/** What a run does, and where it finds things; they count beside a configuration file, too. */
export const ACTIONS = {
  cleanup: switchFlag({
    name: "cleanup",
    help: "Remove the rules of every mode and end.",
  }),
  initOnly: switchFlag({
    name: "init-only",
    help: "Do what needs full root rights and end, so that a second start with --config can do with CAP_NET_ADMIN.",
  }),
  writeConfigTo: textFlag({
    name: "write-config-to",
    help: "Write the resolved configuration to this file and end.",
  }),
  configFile: textFlag({
    name: "config",
    help: "The configuration file. With it, only the logging flags, --hostname-override, --master, the flags that name an action and those that say so still count.",
  }),
  master: textFlag({
    name: "master",
    help: "The URL of the API server; wins over the kubeconfig, also with --config.",
  }),
  manifests: textFlag({
    name: "manifests",
    word: "directory",
    help: "Take Services, EndpointSlices and Nodes from the manifests in this folder, and watch it, instead of asking an API server. May be used together with --config.",
    isExtension: true,
  }),
  inspectSocket: textFlag({
    name: "inspect-socket",
    help: "A Unix socket, for the daemon's user alone, on which kube-proxy status, services and monitor are answered. Empty: none. May be used together with --config.",
    isExtension: true,
  }),
  inspectBindAddress: textFlag({
    name: "inspect-bind-address",
    word: "IP:port",
    help: "Serve a page here that shows services, the ways of packets, syncs and what is wrong; it only reads, and asks for no password. For example 127.0.0.1:10260. Empty: no page. May be used together with --config.",
    isExtension: true,
  }),
  startupTaint: textFlag({
    name: "startup-taint",
    word: "key",
    help: "Take the taint with this key from the Node once the rules of every family are in force; takes the right to patch nodes. May be used together with --config.",
    isExtension: true,
  }),
  healthzService: textFlag({
    name: "healthz-service",
    word: "namespace/name:port",
    help: "With each question, /healthz also connects to the cluster IP of this TCP port of a Service, and says 503 where that fails although an endpoint answers past the rules. Empty: it does not. May be used together with --config.",
    isExtension: true,
  }),
};

export const VERSION = flag({
  name: "version",
  type: versionType,
  initial: { print: "none", gitVersion: undefined },
  help: `--version and --version=raw print the version and end; --version=${CURRENT_RELEASE.version}-… reports this version instead.`,
});

export const HELP = switchFlag({
  name: "help",
  shorthand: "h",
  help: "Print this text and end.",
});

export const COMPATIBILITY = SELDOM.flag({
  name: "compatibility",
  field: "compatibility",
  type: { ...stringType, word: "release" },
  help: `Whose rules, messages and defaults to have, where releases differ: ${releaseNames()}.`,
  isExtension: true,
});

export const LOG_FILE = textFlag({
  name: "log-file",
  help: "Append log lines to this file, and write none to standard error; at 100 MB it becomes FILE.1. For Windows services, which have no standard error. May be used together with --config.",
  isExtension: true,
});

export const WINDOWS_SERVICE = switchFlag({
  name: "windows-service",
  help: "On Windows, run as the service kube-proxy, which the service control manager starts. May be used together with --config.",
  isExtension: true,
});

export const HOSTNAME_OVERRIDE = textFlag({
  name: "hostname-override",
  help: "The name of this node, where it is not the host name; wins over the configuration file.",
});

export const PROCESS_FLAGS: readonly AnyFlag[] = [
  ...Object.values(ACTIONS),
  flag({
    name: "boot-id-file",
    type: stringType,
    initial: "/proc/sys/kernel/random/boot_id",
    help: "Accepted for compatibility, without effect.",
  }),
  flag({
    name: "machine-id-file",
    type: stringType,
    initial: "/etc/machine-id,/var/lib/dbus/machine-id",
    help: "Accepted for compatibility, without effect.",
  }),
  COMPATIBILITY,
  GENERAL.flag({
    name: "config-sync-period",
    field: "configSyncPeriod",
    help: "How often all known objects are looked at again; more than 0.",
  }),
  GENERAL.flag({
    name: "feature-gates",
    field: "featureGates",
    help: "Switches for features, as name=true or name=false, with commas between; may be repeated.",
  }),
  HELP,
  HOSTNAME_OVERRIDE,
  CLIENT_CONNECTION.flag({
    name: "kube-api-burst",
    field: "burst",
    help: "How many requests to the API server may be made at once before --kube-api-qps slows them down.",
  }),
  CLIENT_CONNECTION.flag({
    name: "kube-api-content-type",
    field: "contentType",
    help: "The content type of requests to the API server.",
  }),
  CLIENT_CONNECTION.flag({
    name: "kube-api-qps",
    field: "qps",
    help: "Requests to the API server per second; below 0 there is no limit.",
  }),
  CLIENT_CONNECTION.flag({
    name: "kubeconfig",
    field: "kubeconfig",
    help: "The file with the address of the API server and the credentials; ignored with --config.",
  }),
  LOG_FILE,
  GENERAL.flag({
    name: "profiling",
    field: "enableProfiling",
    help: "Serve /debug on the metrics server.",
  }),
  GENERAL.flag({
    name: "show-hidden-metrics-for-version",
    field: "showHiddenMetricsForVersion",
    help: `Show metrics that this version hides: empty, or the previous minor version (${CURRENT_RELEASE.previousMinor}).`,
  }),
  VERSION,
  SELDOM.flag({
    name: "windows-priorityclass",
    field: "windowsPriorityClass",
    help: "On Windows, the priority class of the process: IDLE_PRIORITY_CLASS, BELOW_NORMAL_PRIORITY_CLASS, NORMAL_PRIORITY_CLASS, ABOVE_NORMAL_PRIORITY_CLASS, HIGH_PRIORITY_CLASS or REALTIME_PRIORITY_CLASS. Empty: as it was started.",
    isExtension: true,
  }),
  WINDOWS_SERVICE,
];

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
  textFlag({
    name: "cluster-cidr",
    help: "The prefix of all pods, or one for each IP family with a comma between; traffic from it is local in ClusterCIDR mode.",
    overlay: (config, text) => ({ ...config, detectLocal: { ...config.detectLocal, clusterCIDRs: text.split(",") } }),
  }),
  GENERAL.flag({
    name: "detect-local-mode",
    field: "detectLocalMode",
    help: "How traffic of local pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; empty means ClusterCIDR.",
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
  GENERAL.flag({
    name: "nodeport-addresses",
    field: "nodePortAddresses",
    help: 'Where node ports answer: prefixes, and the words "primary" (the node\'s own addresses), "localhost" and "all", in any mix. Loopback works for IPv4 in iptables mode, and for TCP in nftables mode if the list names it and the gate KubeProxyNFTablesLocalhostNodePorts is on. Empty: all addresses, but "primary" in nftables mode.',
  }),
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

/** The mode whose flags set the periods of the mode that runs. */
const ownerOf = (mode: string): RegisteredMode => {
  const running = findMode(mode);
  return running?.config.periodFlags === undefined ? DEFAULT_MODE : running;
};

const PERIODS = { syncPeriod: "sync-period", minSyncPeriod: "min-sync-period" } as const;

/** Of each mode with periods of its own. */
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
  CONNTRACK.flag({
    name: "conntrack-max-per-core",
    field: "maxPerCore",
    help: "Tracked connections allowed for each CPU; 0 leaves the kernel's limit alone and ignores --conntrack-min.",
  }),
  CONNTRACK.flag({
    name: "conntrack-min",
    field: "min",
    help: "The least number of tracked connections to allow, however few CPUs there are.",
  }),
  CONNTRACK.flag({
    name: "conntrack-tcp-be-liberal",
    field: "tcpBeLiberal",
    help: "Let connection tracking accept TCP packets outside of the window (sets nf_conntrack_tcp_be_liberal).",
  }),
  CONNTRACK.flag({
    name: "conntrack-tcp-timeout-close-wait",
    field: "tcpCloseWaitTimeout",
    help: "How long a TCP connection in CLOSE_WAIT stays tracked.",
  }),
  CONNTRACK.flag({
    name: "conntrack-tcp-timeout-established",
    field: "tcpEstablishedTimeout",
    help: `How long an idle TCP connection stays tracked. ${KEEPS_KERNEL_VALUE}`,
  }),
  CONNTRACK.flag({
    name: "conntrack-udp-timeout",
    field: "udpTimeout",
    help: `How long an unanswered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
  }),
  CONNTRACK.flag({
    name: "conntrack-udp-timeout-stream",
    field: "udpStreamTimeout",
    help: `How long an answered UDP flow stays tracked. ${KEEPS_KERNEL_VALUE}`,
  }),
  switchFlag({
    name: "masquerade-all",
    help: "Masquerade all traffic to cluster IPs, also that of local pods.",
    overlay: (config, masqueradeAll) => ({ ...config, masqueradeAll }),
  }),
  GENERAL.flag({
    name: "oom-score-adj",
    field: "oomScoreAdj",
    help: "The oom_score_adj of this process, -1000 to 1000.",
  }),
];

const loggingFlag = flagsIn("logging");

/** A change of one of the formats' options. */
const inFormat = (format: "text" | "json", { options }: LoggingConfig, change: Partial<LogOutput>) => ({
  options: { ...options, [format]: { ...options[format], ...change } },
});

function outputFlags(format: "text" | "json"): readonly AnyFlag[] {
  return [
    loggingFlag({
      name: `log-${format}-info-buffer-size`,
      type: quantityType,
      initial: ZERO_QUANTITY,
      help: `How much ${format} output may wait in memory when the streams are split; 0 writes at once. Alpha: needs the gate LoggingAlphaOptions.`,
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
    help: "The longest time that log lines stay unwritten.",
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
    help: "How much is logged: 0 life cycle, 2 syncs, 4 single events, 9 whole rule sets.",
    sets: (verbosity) => ({ verbosity }),
  }),
  loggingFlag({
    name: "vmodule",
    type: vmoduleType,
    initial: [],
    help: "Verbosity for the source files that match a pattern; text format only.",
    // In front of the file's own items: the first match decides.
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
