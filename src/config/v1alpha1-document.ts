/**
 * A decoded `KubeProxyConfiguration` before defaults: what is not set is the zero value of its Go type, or absent where
 * upstream keeps a pointer. Durations are nanoseconds. Reference configuration.md §3.2.
 */
import type { ClientConnection, ModeSections, VModuleItem } from "./config.ts";
import type { Quantity } from "./quantity.ts";

/** `logging.flushFrequency`: a duration text, or whole nanoseconds; written back in the form it was read. */
export interface FlushFrequency {
  readonly nanoseconds: bigint;
  readonly asText: boolean;
}

interface LogOutputDocument {
  readonly splitStream: boolean;
  readonly infoBufferSize: Quantity;
}

/** The whole document. */
export interface ConfigurationDocument extends ModeSections<"document"> {
  readonly kind: string;
  readonly apiVersion: string;
  readonly featureGates: Readonly<Record<string, boolean>>;
  readonly clientConnection: ClientConnection;
  readonly logging: {
    readonly format: string;
    readonly flushFrequency: FlushFrequency;
    readonly verbosity: number;
    readonly vmodule: readonly VModuleItem[];
    readonly options: { readonly text: LogOutputDocument; readonly json: LogOutputDocument };
  };
  readonly hostnameOverride: string;
  readonly bindAddress: string;
  readonly healthzBindAddress: string;
  readonly metricsBindAddress: string;
  readonly bindAddressHardFail: boolean;
  readonly enableProfiling: boolean;
  readonly showHiddenMetricsForVersion: string;
  readonly mode: string;
  readonly detectLocalMode: string;
  readonly detectLocal: { readonly bridgeInterface: string; readonly interfaceNamePrefix: string };
  readonly clusterCIDR: string;
  readonly nodePortAddresses: readonly string[];
  readonly oomScoreAdj?: number | null | undefined;
  readonly conntrack: {
    readonly maxPerCore?: number | null | undefined;
    readonly min?: number | null | undefined;
    readonly tcpEstablishedTimeout?: bigint | null | undefined;
    readonly tcpCloseWaitTimeout?: bigint | null | undefined;
    readonly tcpBeLiberal: boolean;
    readonly udpTimeout: bigint;
    readonly udpStreamTimeout: bigint;
  };
  readonly configSyncPeriod: bigint;
  /** Of userspace mode, where releases up to v1.25 had it. */
  readonly portRange: string;
  /** Of userspace mode, likewise. */
  readonly udpIdleTimeout: bigint;
  readonly windowsRunAsService: boolean;
  /** Ours. */
  readonly windowsPriorityClass: string;
  /** Ours. */
  readonly compatibility: string;
}
