/**
 * Validates a resolved configuration with upstream's paths, order and words. Reference configuration.md §3.5.
 */
import { constants } from "node:os";
import { splitHostPort } from "../../contract/config/bind-address.ts";
import {
  COUNTED,
  DETECT_LOCAL_MODES,
  type DraftConfig,
  type KubeProxyConfig,
  type LoggingConfig,
} from "../../contract/config/config.ts";
import { type FeatureGates, gatesOf, setFeatureGates } from "../../contract/config/feature-gates.ts";
import {
  duplicate,
  forbidden,
  invalid,
  negative,
  negativeMs,
  notPositive,
  CONFIG_ROOT as ROOT,
  required,
  unsupported,
} from "../../contract/config/field-error.ts";
import { NODE_PORT_ADDRESSES_PRIMARY, NODE_PORT_WORDS } from "../../contract/config/node-port-words.ts";
import { RELEASES, type Release, releaseOf } from "../../contract/config/release.ts";
import { defaultModeOn, isProxyMode, MODES, modeNamed, modesOn, type RegisteredMode } from "../../modes/registry.ts";
import { END_TCP, isEndTcp } from "../../net/flow.ts";
import { INTERFACE_NAME_RULE, isInterfaceName, isInterfaceNamePrefix } from "../../net/interface-name.ts";
import { familyOf, parseCidr, parseIpAddress, toPort } from "../../net/ip.ts";
import { formatMs } from "../../text/duration.ts";
import { joinErrors } from "../../text/go-text.ts";

/** The result of the checks: the configuration with its modes narrowed, or all errors in upstream's order. */
type CheckResult =
  | { readonly ok: true; readonly config: KubeProxyConfig }
  | { readonly ok: false; readonly errors: readonly string[]; readonly message: string };

/** `$(NODE_NAME)`, `${NODE_NAME}`, `%NODE_NAME%`: what a shell or the kubelet should have replaced. */
export const IS_VARIABLE = /\$[({]?\w|%\w+%/;

/**
 * Checks a resolved configuration (after `applyPlatformDefaults`).
 *
 * @returns the checked configuration, or the errors; `message` joins them, one bare, several as `[a, b]`.
 */
export function checkConfig(draft: DraftConfig): CheckResult {
  const errors = configErrors(draft);
  const { mode } = draft;
  const detectLocalMode = [...DETECT_LOCAL_MODES, "" as const].find((known) => known === draft.detectLocalMode);
  if (errors.length > 0 || !isProxyMode(mode) || detectLocalMode === undefined) {
    return { ok: false, errors, message: joinErrors(errors) };
  }
  return { ok: true, config: { ...draft, mode, detectLocalMode } };
}

/** The errors of a configuration; an empty mode or local-traffic mode is allowed here, as upstream. */
export function configErrors(draft: DraftConfig): readonly string[] {
  const release = releaseOf(draft);
  const result = setFeatureGates(draft.featureGates, release);
  // If the gates cannot be applied, the defaults hold.
  const gates = result.ok ? result.gates : gatesOf({ ...draft, featureGates: {} });
  return [
    ...(result.ok ? [] : [invalid(`${ROOT}.featureGates`, draft.featureGates, result.error)]),
    ...compatibilityErrors(draft),
    ...connectionsErrors(draft),
    ...MODES.flatMap(({ config }) => config.errors(draft)),
    ...linuxErrors(draft),
    ...windowsErrors(draft),
    ...modeErrors(draft.mode, gates),
    ...negative(`${ROOT}.ClientConnection.Burst`, draft.clientConnection.burst),
    ...notPositive(`${ROOT}.ConfigSyncPeriod`, draft.configSyncPeriodMs),
    ...periodErrors(draft),
    ...addressErrors(draft),
    ...nodePortAddressErrors(draft.nodePortAddresses, release),
    ...hiddenMetricsErrors(draft.showHiddenMetricsForVersion, release),
    ...detectLocalModeErrors(draft.detectLocalMode),
    ...detectLocalErrors(draft, `${ROOT}.DetectLocalConfiguration`),
    ...loggingErrors(draft.logging, gates, `${ROOT}.logging`),
  ];
}

function compatibilityErrors({ compatibility }: DraftConfig): readonly string[] {
  const known = RELEASES.map(({ name }) => name);
  return known.includes(compatibility) ? [] : [unsupported(`${ROOT}.Compatibility`, compatibility, known)];
}

function connectionsErrors({ connections }: DraftConfig): readonly string[] {
  const { endTCP, endTCPAfterMs, count, countedServices, answerCheckPeriodMs } = connections;
  const { leaveAtMost, leaveAtMostNodes, leaveForMs, leaveForAtMostMs } = connections;
  const path = `${ROOT}.Connections`;
  return [
    ...(isEndTcp(endTCP) ? [] : [unsupported(`${path}.EndTCP`, endTCP, END_TCP)]),
    ...negativeMs(`${path}.EndTCPAfter`, endTCPAfterMs),
    ...(COUNTED.some((known) => known === count) ? [] : [unsupported(`${path}.Count`, count, COUNTED)]),
    ...negative(`${path}.CountedServices`, countedServices),
    ...negativeMs(`${path}.AnswerCheckPeriod`, answerCheckPeriodMs),
    ...percentage(`${path}.LeaveAtMost`, leaveAtMost),
    ...percentage(`${path}.LeaveAtMostNodes`, leaveAtMostNodes),
    ...notPositive(`${path}.LeaveFor`, leaveForMs),
    ...(leaveForAtMostMs >= leaveForMs
      ? []
      : [invalid(`${path}.LeaveForAtMost`, formatMs(leaveForAtMostMs), "must not be below LeaveFor")]),
  ];
}

function percentage(path: string, value: number): readonly string[] {
  return value >= 1 && value <= 100 ? [] : [invalid(path, value, "must be 1 to 100")];
}

function linuxErrors({ conntrack, oomScoreAdj }: DraftConfig): readonly string[] {
  const linux = `${ROOT}.KubeProxyLinuxConfiguration`;
  const path = `${linux}.KubeProxyConntrackConfiguration`;
  return [
    ...negative(`${path}.MaxPerCore`, conntrack.maxPerCore),
    ...negative(`${path}.Min`, conntrack.min),
    ...negativeMs(`${path}.TCPEstablishedTimeout`, conntrack.tcpEstablishedTimeoutMs),
    ...negativeMs(`${path}.TCPCloseWaitTimeout`, conntrack.tcpCloseWaitTimeoutMs),
    ...negativeMs(`${path}.UDPTimeout`, conntrack.udpTimeoutMs),
    ...negativeMs(`${path}.UDPStreamTimeout`, conntrack.udpStreamTimeoutMs),
    ...(oomScoreAdj < -1000 || oomScoreAdj > 1000
      ? [invalid(`${linux}.OOMScoreAdj`, oomScoreAdj, "must be within the range [-1000, 1000]")]
      : []),
  ];
}

function windowsErrors({ windowsPriorityClass }: DraftConfig): readonly string[] {
  if (windowsPriorityClass === "" || PRIORITY_CLASSES.has(windowsPriorityClass)) return [];
  return [unsupported(`${ROOT}.WindowsPriorityClass`, windowsPriorityClass, [...PRIORITY_CLASSES.keys()])];
}

function modeErrors(mode: string, gates: FeatureGates, platform = process.platform): readonly string[] {
  const isOff = ({ gate }: RegisteredMode) => gate !== undefined && !gates.isEnabled(gate);
  if (mode === "" || (isProxyMode(mode) && !isOff(modeNamed(mode)))) return [];
  const names = (isUpstream: boolean) =>
    modesOn(platform)
      .filter((other) => other.isUpstream === isUpstream && !isOff(other))
      .map(({ name }) => name);
  const blank = `(blank means the best-available proxy [currently ${defaultModeOn(platform).name}])`;
  const detail = `must be ${names(true).join(", ")} or blank ${blank}; here also ${names(false).join(" or ")}`;
  return [invalid(`${ROOT}.Mode.ProxyMode`, mode, detail)];
}

function periodErrors({ syncPeriodMs, minSyncPeriodMs }: DraftConfig): readonly string[] {
  const path = `${ROOT}.SyncPeriod`;
  return [
    ...notPositive(path, syncPeriodMs),
    ...negativeMs(`${ROOT}.MinSyncPeriod`, minSyncPeriodMs),
    // The message shows the shorter period, as upstream's does.
    ...(minSyncPeriodMs > syncPeriodMs
      ? [invalid(path, formatMs(minSyncPeriodMs), `must be greater than or equal to ${ROOT}.MinSyncPeriod`)]
      : []),
  ];
}

function addressErrors(draft: DraftConfig): readonly string[] {
  const { bindAddress, healthzBindAddress, metricsBindAddress } = draft;
  return [
    ...(parseIpAddress(bindAddress) === undefined
      ? [invalid(`${ROOT}.BindAddress`, bindAddress, "not a valid textual representation of an IP address")]
      : []),
    ...(healthzBindAddress === "" ? [] : hostPortErrors(`${ROOT}.HealthzBindAddress`, healthzBindAddress)),
    ...hostPortErrors(`${ROOT}.MetricsBindAddress`, metricsBindAddress),
  ];
}

function hostPortErrors(path: string, text: string): readonly string[] {
  const parts = splitHostPort(text);
  if (parts === undefined) return [invalid(path, text, "must be IP:port")];
  const { host, port } = parts;
  const portNumber = /^[+-]?[0-9]+$/.test(port) ? toPort(Number(port)) : undefined;
  return [
    ...(parseIpAddress(host) === undefined ? [invalid(path, host, "must be a valid IP")] : []),
    ...(portNumber === undefined ? [invalid(path, port, "must be a valid port")] : []),
  ];
}

function nodePortAddressErrors(addresses: readonly string[], release: Release): readonly string[] {
  if (!release.mixesNodePortWords) return primaryOrCidrErrors(addresses);
  const words = NODE_PORT_WORDS.map((word) => `'${word}'`).join(", ");
  return addresses.flatMap((address, index) => {
    const path = `${ROOT}.NodePortAddresses[${index}]`;
    if (NODE_PORT_WORDS.includes(address)) return addresses.indexOf(address) < index ? [duplicate(path, address)] : [];
    const detail = `must be a valid CIDR or one of the keywords ${words}`;
    return parseCidr(address) === undefined ? [invalid(path, address, detail)] : [];
  });
}

/** The rule up to v1.36. */
function primaryOrCidrErrors(addresses: readonly string[]): readonly string[] {
  const errors: string[] = [];
  for (const [index, address] of addresses.entries()) {
    const path = `${ROOT}.NodePortAddresses[${index}]`;
    if (address === NODE_PORT_ADDRESSES_PRIMARY) {
      if (addresses.length > 1) errors.push(invalid(path, address, "can't use both 'primary' and CIDRs"));
      break;
    }
    if (parseCidr(address) === undefined) errors.push(invalid(path, address, "must be a valid CIDR"));
  }
  return errors;
}

function hiddenMetricsErrors(version: string, { previousMinor }: Release): readonly string[] {
  if (version === "" || version === previousMinor) return [];
  const inner = invalid(
    "showHiddenMetricsForVersion",
    version,
    `must be omitted or have the value '${previousMinor}'; only the previous minor version is allowed`,
  );
  return [invalid(`${ROOT}.ShowHiddenMetricsForVersion`, version, `invalid showHiddenMetricsForVersion: ${inner}`)];
}

function detectLocalModeErrors(mode: string): readonly string[] {
  if (mode === "" || DETECT_LOCAL_MODES.some((known) => known === mode)) return [];
  return [unsupported(`${ROOT}.DetectLocalMode`, mode, [...DETECT_LOCAL_MODES, ""])];
}

// Upstream leaves the last bracket open.
const NOT_A_PAIR =
  "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";
const NO_INTERFACE = `must be a name that an interface can have: ${INTERFACE_NAME_RULE}`;
const NOT_A_CIDR = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";

/** The errors of the section that `detectLocalMode` selects. */
function detectLocalErrors(draft: DraftConfig, path: string): readonly string[] {
  const { bridgeInterface, clusterCIDRs, interfaceNamePrefix } = draft.detectLocal;
  switch (draft.detectLocalMode) {
    case "BridgeInterface":
      return interfaceErrors(bridgeInterface, isInterfaceName, `${path}.InterfaceName`);
    case "InterfaceNamePrefix":
      return interfaceErrors(interfaceNamePrefix, isInterfaceNamePrefix, `${path}.InterfacePrefix`);
    case "ClusterCIDR":
      return clusterCidrErrors(clusterCIDRs, `${path}.ClusterCIDRs`);
    default:
      return [];
  }
}

/** Upstream only rejects an empty name. With any other impossible name, the kernel rejects all rules of the node. */
function interfaceErrors(name: string, isPossible: (name: string) => boolean, path: string): readonly string[] {
  if (name === "") return [invalid(path, "", "must not be empty")];
  return isPossible(name) ? [] : [invalid(path, name, NO_INTERFACE)];
}

function clusterCidrErrors(texts: readonly string[], path: string): readonly string[] {
  if (texts.length > 2) return [invalid(path, texts, NOT_A_PAIR)];
  const cidrs = texts.map(parseCidr);
  const errors = cidrs.flatMap((cidr, index) =>
    cidr === undefined ? [invalid(`${path}[${index}]`, texts[index] ?? "", NOT_A_CIDR)] : [],
  );
  const families = new Set(cidrs.map((cidr) => cidr && familyOf(cidr)));
  if (errors.length === 0 && cidrs.length === 2 && families.size !== 2) errors.push(invalid(path, texts, NOT_A_PAIR));
  return errors;
}

const { priority } = constants;

export const PRIORITY_CLASSES: ReadonlyMap<string, number> = new Map([
  ["IDLE_PRIORITY_CLASS", priority.PRIORITY_LOW],
  ["BELOW_NORMAL_PRIORITY_CLASS", priority.PRIORITY_BELOW_NORMAL],
  ["NORMAL_PRIORITY_CLASS", priority.PRIORITY_NORMAL],
  ["ABOVE_NORMAL_PRIORITY_CLASS", priority.PRIORITY_ABOVE_NORMAL],
  ["HIGH_PRIORITY_CLASS", priority.PRIORITY_HIGH],
  ["REALTIME_PRIORITY_CLASS", priority.PRIORITY_HIGHEST],
]);

const LOG_FORMATS = ["text", "json"] as const;
const MAX_VERBOSITY = 2 ** 31 - 1;

/** The errors of a logging section, in upstream's order; `path` is `logging` or `KubeProxyConfiguration.logging`. */
export function loggingErrors(logging: LoggingConfig, gates: FeatureGates, path: string): readonly string[] {
  const errors: string[] = [];
  const tooVerbose = `Must be <= ${MAX_VERBOSITY}`;
  if (!LOG_FORMATS.some((format) => format === logging.format)) {
    errors.push(invalid(`${path}.format`, logging.format, "Unsupported log format"));
  } else if (logging.format === "json" && !gates.isEnabled("LoggingBetaOptions")) {
    errors.push(forbidden(`${path}.format`, "Log format json is disabled, see LoggingBetaOptions feature"));
  }
  if (logging.flushFrequencyMs <= 0) {
    errors.push(invalid(`${path}.flushFrequency`, formatMs(logging.flushFrequencyMs), "Must be greater than zero"));
  }
  if (logging.verbosity > MAX_VERBOSITY) {
    errors.push(invalid(`${path}.verbosity`, logging.verbosity, tooVerbose));
  }
  if (logging.vmodule.length > 0 && logging.format !== "" && logging.format !== "text") {
    errors.push(forbidden(`${path}.vmodule`, "Only supported for text log format"));
  }
  for (const [index, { filePattern, verbosity }] of logging.vmodule.entries()) {
    const itemPath = `${path}.vmodule[${index}]`;
    if (filePattern === "") errors.push(required(itemPath, "File pattern must not be empty"));
    if (/[=,]/.test(filePattern)) {
      errors.push(invalid(itemPath, filePattern, "File pattern must not contain equal sign or comma"));
    }
    if (verbosity > MAX_VERBOSITY) errors.push(invalid(itemPath, verbosity, tooVerbose));
  }
  if (!gates.isEnabled("LoggingAlphaOptions")) {
    const disabled = "Feature LoggingAlphaOptions is disabled";
    for (const format of LOG_FORMATS) {
      const output = logging.options[format];
      if (output.splitStream) errors.push(forbidden(`${path}.options.${format}.splitStream`, disabled));
      if (output.infoBufferSize.bytes !== 0) {
        errors.push(forbidden(`${path}.options.${format}.infoBufferSize`, disabled));
      }
    }
  }
  return errors;
}
