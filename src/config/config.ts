/**
 * The configuration that the rest of the program uses. One sync period, one masquerade setting: what the active mode's
 * section of the file said (reference server.md §3.3). Times are milliseconds.
 *
 * `DraftConfig` is resolved but unchecked, `KubeProxyConfig` has passed `checkConfig` (`validate.ts`). Addresses and
 * prefixes stay the texts of the user, because they are written back as they were; `net/ip.ts` reads them.
 */
import type { Quantity } from "./quantity.ts";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

/** The modes that kube-proxy v1.36 knows on Linux. */
export const UPSTREAM_PROXY_MODES = ["iptables", "ipvs", "nftables"] as const;
/** Those, and the ones that we have besides: upstream lost `userspace` with v1.26. */
export const PROXY_MODES = [...UPSTREAM_PROXY_MODES, "userspace"] as const;
export type ProxyMode = (typeof PROXY_MODES)[number];

/** How traffic from local pods is told from other traffic. */
export const DETECT_LOCAL_MODES = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"] as const;
export type DetectLocalMode = (typeof DETECT_LOCAL_MODES)[number];

/** The word in `nodePortAddresses` that stands for the node's own primary addresses. */
export const NODE_PORT_ADDRESSES_PRIMARY = "primary";

export interface ClientConnection {
  readonly kubeconfig: string;
  readonly acceptContentTypes: string;
  readonly contentType: string;
  readonly qps: number;
  readonly burst: number;
}

/** A verbosity for source files that match a pattern. */
export interface VModuleItem {
  readonly filePattern: string;
  readonly verbosity: number;
}

/** Where a log format sends its lines, and how much it may buffer. */
export interface LogOutput {
  readonly splitStream: boolean;
  readonly infoBufferSize: Quantity;
}

export interface LoggingConfig {
  readonly format: string;
  readonly flushFrequencyMs: number;
  /** Whether the flush frequency is written back as a duration text; otherwise as a number of nanoseconds. */
  readonly flushFrequencyAsText: boolean;
  readonly verbosity: number;
  readonly vmodule: readonly VModuleItem[];
  readonly options: { readonly text: LogOutput; readonly json: LogOutput };
}

export interface IptablesConfig {
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
}

export interface IpvsConfig {
  readonly scheduler: string;
  readonly excludeCIDRs: readonly string[];
  readonly strictARP: boolean;
  /** 0 keeps the kernel's value, here and in the next two. */
  readonly tcpTimeoutMs: number;
  readonly tcpFinTimeoutMs: number;
  readonly udpTimeoutMs: number;
}

export interface NftablesConfig {
  readonly masqueradeBit: number;
}

/** What leads packets to the sockets of userspace mode: `none` needs no netfilter and serves local addresses only. */
export const USERSPACE_RULES = ["iptables", "none"] as const;
export type UserspaceRules = (typeof USERSPACE_RULES)[number];

/** Of the file, `portRange` and `udpIdleTimeout` stand at the top, where releases up to v1.25 had them. */
export interface UserspaceConfig {
  /** Empty: any free port. See `port-range.ts`. */
  readonly portRange: string;
  readonly udpIdleTimeoutMs: number;
  readonly rules: string;
  /** How long connections may go on after a stop was asked for; then they are cut. */
  readonly drainTimeoutMs: number;
}

/** Windows settings: read, kept and written back, without effect here. */
export interface WinkernelConfig {
  readonly networkName: string;
  readonly sourceVip: string;
  readonly enableDSR: boolean;
  readonly rootHnsEndpointName: string;
  readonly forwardHealthCheckVip: boolean;
}

export interface DetectLocalConfig {
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  /** `clusterCIDR` of the file, split at commas and not trimmed. */
  readonly clusterCIDRs: readonly string[];
}

export interface ConntrackConfig {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedTimeoutMs: number;
  readonly tcpCloseWaitTimeoutMs: number;
  readonly tcpBeLiberal: boolean;
  readonly udpTimeoutMs: number;
  readonly udpStreamTimeoutMs: number;
}

/** Resolved from file, flags and defaults, but not yet checked. */
export interface DraftConfig {
  /** The gates that were set, not the effective ones: see `feature-gates.ts`. */
  readonly featureGates: Readonly<Record<string, boolean>>;
  readonly clientConnection: ClientConnection;
  readonly logging: LoggingConfig;
  readonly hostnameOverride: string;
  /** The node's primary address if it is not the unspecified one; nothing is bound to it. */
  readonly bindAddress: string;
  /** `IP:port`, or empty: no health server. */
  readonly healthzBindAddress: string;
  readonly metricsBindAddress: string;
  readonly bindAddressHardFail: boolean;
  readonly enableProfiling: boolean;
  readonly showHiddenMetricsForVersion: string;
  readonly mode: string;
  readonly syncPeriodMs: number;
  readonly minSyncPeriodMs: number;
  readonly masqueradeAll: boolean;
  readonly iptables: IptablesConfig;
  readonly ipvs: IpvsConfig;
  readonly nftables: NftablesConfig;
  readonly userspace: UserspaceConfig;
  readonly winkernel: WinkernelConfig;
  readonly detectLocalMode: string;
  readonly detectLocal: DetectLocalConfig;
  /** Prefixes, or the one word `primary`. */
  readonly nodePortAddresses: readonly string[];
  readonly oomScoreAdj: number;
  readonly conntrack: ConntrackConfig;
  readonly configSyncPeriodMs: number;
  readonly windowsRunAsService: boolean;
}

/** A configuration that has passed every check. */
export interface KubeProxyConfig extends DraftConfig {
  readonly mode: ProxyMode;
  readonly userspace: UserspaceConfig & { readonly rules: UserspaceRules };
  readonly detectLocalMode: DetectLocalMode;
}

/**
 * The default of nftables mode: upstream's second would only delay changes there. The backend asks for the rests that it
 * needs, by what the kernel takes for a commit (docs/performance.md).
 */
const NFTABLES_MIN_SYNC_PERIOD_MS = 1;

/** The time to keep between two syncs: what the user chose, else the active mode's own default. Pure. */
export function shortestSyncPeriodMs(config: DraftConfig, isMinSyncPeriodSet: boolean): number {
  return config.mode === "nftables" && !isMinSyncPeriodSet ? NFTABLES_MIN_SYNC_PERIOD_MS : config.minSyncPeriodMs;
}

/** The masquerade bit of the active mode: nftables has its own, the other modes share one. Pure. */
export function activeMasqueradeBit(config: DraftConfig): number {
  return config.mode === "nftables" ? config.nftables.masqueradeBit : config.iptables.masqueradeBit;
}
