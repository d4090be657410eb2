/**
 * A resolved configuration back as v1alpha1: for `--write-config-to` (YAML, sorted keys) and `/configz` (JSON in the
 * order of the API type). Pure. Reference server.md §3.2–3.4, §9.2.
 *
 * The sections of inactive modes have lost their periods by now and are written as `0s`.
 */
import { API_VERSION, type DraftConfig, KIND, type LoggingConfig, type LogOutput } from "./config.ts";
import { USERSPACE_DEFAULTS } from "./defaults.ts";
import { durationFromMs, formatMs } from "./duration.ts";

type PlainValue = null | boolean | number | string | readonly PlainValue[] | PlainObject;
interface PlainObject {
  readonly [key: string]: PlainValue;
}

const NO_PERIODS = { syncPeriod: "0s", minSyncPeriod: "0s" };

/** The configuration as a v1alpha1 object whose members stand in the order of the API type. Pure. */
export function toV1Alpha1(config: DraftConfig): PlainObject {
  const { conntrack, detectLocal, ipvs, mode } = config;
  const periods = { syncPeriod: formatMs(config.syncPeriodMs), minSyncPeriod: formatMs(config.minSyncPeriodMs) };
  const isNftables = mode === "nftables";
  const isIpvs = mode === "ipvs";
  return {
    kind: KIND,
    apiVersion: API_VERSION,
    ...(Object.keys(config.featureGates).length === 0 ? {} : { featureGates: config.featureGates }),
    clientConnection: { ...config.clientConnection },
    logging: loggingObject(config.logging),
    hostnameOverride: config.hostnameOverride,
    bindAddress: config.bindAddress,
    healthzBindAddress: config.healthzBindAddress,
    metricsBindAddress: config.metricsBindAddress,
    bindAddressHardFail: config.bindAddressHardFail,
    enableProfiling: config.enableProfiling,
    showHiddenMetricsForVersion: config.showHiddenMetricsForVersion,
    mode,
    iptables: {
      masqueradeBit: config.iptables.masqueradeBit,
      masqueradeAll: isNftables ? false : config.masqueradeAll,
      localhostNodePorts: config.iptables.localhostNodePorts,
      ...(isNftables || isIpvs ? NO_PERIODS : periods),
    },
    ipvs: {
      ...(isIpvs ? periods : NO_PERIODS),
      scheduler: ipvs.scheduler,
      excludeCIDRs: listOrNull(ipvs.excludeCIDRs),
      strictARP: ipvs.strictARP,
      tcpTimeout: formatMs(ipvs.tcpTimeoutMs),
      tcpFinTimeout: formatMs(ipvs.tcpFinTimeoutMs),
      udpTimeout: formatMs(ipvs.udpTimeoutMs),
    },
    nftables: {
      masqueradeBit: config.nftables.masqueradeBit,
      masqueradeAll: isNftables ? config.masqueradeAll : false,
      ...(isNftables ? periods : NO_PERIODS),
    },
    ...userspaceSection(config),
    winkernel: { ...config.winkernel },
    detectLocalMode: config.detectLocalMode,
    detectLocal: {
      bridgeInterface: detectLocal.bridgeInterface,
      interfaceNamePrefix: detectLocal.interfaceNamePrefix,
    },
    clusterCIDR: detectLocal.clusterCIDRs.join(","),
    nodePortAddresses: listOrNull(config.nodePortAddresses),
    oomScoreAdj: config.oomScoreAdj,
    conntrack: {
      maxPerCore: conntrack.maxPerCore,
      min: conntrack.min,
      tcpEstablishedTimeout: formatMs(conntrack.tcpEstablishedTimeoutMs),
      tcpCloseWaitTimeout: formatMs(conntrack.tcpCloseWaitTimeoutMs),
      tcpBeLiberal: conntrack.tcpBeLiberal,
      udpTimeout: formatMs(conntrack.udpTimeoutMs),
      udpStreamTimeout: formatMs(conntrack.udpStreamTimeoutMs),
    },
    configSyncPeriod: formatMs(config.configSyncPeriodMs),
    portRange: config.userspace.portRange,
    ...(showsUserspace(config) ? { udpIdleTimeout: formatMs(config.userspace.udpIdleTimeoutMs) } : {}),
    ...(config.windowsRunAsService ? { windowsRunAsService: true } : {}),
  };
}

/** Fields that upstream does not have are left out where they say nothing, so that upstream can read the rest. */
function showsUserspace({ mode, userspace }: DraftConfig): boolean {
  const { udpIdleTimeoutMs, rules, drainTimeoutMs } = USERSPACE_DEFAULTS;
  return (
    mode === "userspace" ||
    userspace.udpIdleTimeoutMs !== udpIdleTimeoutMs ||
    userspace.rules !== rules ||
    userspace.drainTimeoutMs !== drainTimeoutMs
  );
}

function userspaceSection(config: DraftConfig): PlainObject {
  if (!showsUserspace(config)) return {};
  const { rules, drainTimeoutMs } = config.userspace;
  return { userspace: { rules, drainTimeout: formatMs(drainTimeoutMs) } };
}

function loggingObject(logging: LoggingConfig): PlainObject {
  return {
    format: logging.format,
    flushFrequency: logging.flushFrequencyAsText
      ? formatMs(logging.flushFrequencyMs)
      : Number(durationFromMs(logging.flushFrequencyMs)),
    verbosity: logging.verbosity,
    ...(logging.vmodule.length === 0 ? {} : { vmodule: logging.vmodule.map((item) => ({ ...item })) }),
    options: { text: outputObject(logging.options.text), json: outputObject(logging.options.json) },
  };
}

function outputObject(output: LogOutput): PlainObject {
  return { ...(output.splitStream ? { splitStream: true } : {}), infoBufferSize: output.infoBufferSize.text };
}

/** Upstream does not tell an empty list from an absent one here, and writes the latter. */
function listOrNull(list: readonly string[]): readonly string[] | null {
  return list.length === 0 ? null : list;
}

/** The body of `/configz`. Pure. */
export function encodeConfigz(config: DraftConfig): string {
  return JSON.stringify({ [API_VERSION.slice(0, API_VERSION.indexOf("/"))]: toV1Alpha1(config) });
}

/**
 * The text that `--write-config-to` writes: YAML with sorted keys, quoted as upstream quotes. The YAML library is
 * loaded on the first call, because a daemon without a configuration file never needs it.
 */
export async function encodeYaml(config: DraftConfig): Promise<string> {
  const { Document, isScalar, parse, visit } = await import("yaml");
  const document = new Document(toV1Alpha1(config), {
    version: "1.1",
    sortMapEntries: true,
    aliasDuplicateObjects: false,
  });
  visit(document, {
    Scalar(_, node) {
      if (!isScalar<string>(node) || typeof node.value !== "string") return;
      if (readsAsOtherType(node.value, (text) => parse(text, { version: "1.1", logLevel: "silent" }))) {
        node.type = "QUOTE_DOUBLE";
      }
    },
  });
  // Text that cannot stand plain gets single quotes, text that would be read as another type double ones.
  return document.toString({ indentSeq: false, lineWidth: 0, singleQuote: true, directives: false });
}

function readsAsOtherType(text: string, parse: (text: string) => unknown): boolean {
  if (text === "") return true;
  if (/\s/.test(text)) return false;
  try {
    return !["string", "object"].includes(typeof parse(text)) || parse(text) === null;
  } catch {
    return false;
  }
}
