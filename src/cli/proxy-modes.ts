/**
 * The proxy modes that this program has, in one table. A new mode adds its folder under `backends/`, a factory like
 * `iptables-mode.ts`, and a line here.
 */
import type { KubeProxyConfig, ProxyMode } from "../config/config.ts";
import type { Logger } from "../logging/logger.ts";
import type { LocalTrafficDetector } from "../model/local-traffic-detector.ts";
import type { NodePortAddresses } from "../model/node-port-addresses.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { ProxyMetrics } from "../server/metrics.ts";
import type { Backend } from "../sync/backend.ts";
import type { Clock } from "../sync/clock.ts";
import type { ConntrackTable } from "../sync/observers.ts";

/** What a mode is given to build its backend for one family. */
export interface BackendContext {
  readonly config: KubeProxyConfig;
  readonly family: IpFamily;
  readonly nodeName: string;
  /** The family's effective node IP; loopback when unknown. */
  readonly nodeIP: IpAddress;
  readonly detector: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
  readonly metrics: ProxyMetrics;
  readonly conntrack: ConntrackTable;
  readonly clock: Clock;
  readonly log: Logger;
}

/** One proxy mode. */
export interface ProxyModeFactory {
  /** Upstream's `Using … Proxier`. */
  readonly startMessage: string;
  /** Begins the error when no family can be served: upstream's `iptables is not available on this host `. */
  readonly unavailableText: string;
  /** Said, and sent as an event about the node, whenever the mode starts. */
  readonly deprecation?: { readonly message: string; readonly reason: "IPVSDeprecation" };
  /** Undefined when the host can run the mode for the family; otherwise upstream's log message and the cause. */
  unsupported(
    family: IpFamily,
    config: KubeProxyConfig,
  ): Promise<{ readonly message: string; readonly error: string } | undefined>;
  /** Whether the mode, so configured, has any use for netfilter and connection tracking. @default true */
  usesNetfilter?(config: KubeProxyConfig): boolean;
  /** Prepares the node (sysctls) and builds the backend. Throws when the mode cannot work. */
  createBackend(context: BackendContext): Promise<Backend>;
  /** Whether a node that comes up in that mode must be cleaned of this one (reference server.md §11). */
  isReplacedBy(mode: ProxyMode): boolean;
  /** Removes what the mode leaves in the kernel, all families; resolves to whether everything worked. */
  cleanUp(log: Logger): Promise<boolean>;
}

type ModeTable = Readonly<Record<ProxyMode, (() => Promise<ProxyModeFactory>) | undefined>>;

/** In the order in which leftovers are removed: rules of ipvs hold chains that iptables has, too. */
const MODES: ModeTable = {
  ipvs: async () => (await import("./ipvs-mode.ts")).ipvsMode,
  iptables: async () => (await import("./iptables-mode.ts")).iptablesMode,
  nftables: async () => (await import("./nftables-mode.ts")).nftablesMode,
  userspace: async () => (await import("./userspace-mode.ts")).userspaceMode,
};

/** The modes that exist, by the name that the configuration has for them. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = (Object.keys(MODES) as ProxyMode[]).filter(
  (mode) => MODES[mode] !== undefined,
);

/** Loads a mode. @throws Error naming the modes that exist when this one does not yet. */
export async function loadProxyMode(mode: ProxyMode): Promise<ProxyModeFactory> {
  const load = MODES[mode];
  if (load === undefined) {
    throw new Error(
      `mode "${mode}" is not implemented yet: set mode (--proxy-mode) to ${IMPLEMENTED_MODES.join(" or ")}`,
    );
  }
  return await load();
}

/** Loads every mode that exists. */
export async function loadAllModes(): Promise<readonly (readonly [ProxyMode, ProxyModeFactory])[]> {
  return await Promise.all(IMPLEMENTED_MODES.map(async (mode) => [mode, await loadProxyMode(mode)] as const));
}
