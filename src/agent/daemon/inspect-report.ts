/** What a running daemon reports over its inspect socket: a status summary and its service table. */

import type { Backend } from "../../contract/backend.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { ConntrackTable, LedFlow } from "../../kernel/conntrack/conntrack.ts";
import type { ConntrackStatistics } from "../../kernel/conntrack/statistics.ts";
import type { ChainHistory } from "../../kernel/nftables/nftables.ts";
import { attempt } from "../../logging/attempt.ts";
import type { LoggedProblem, NodeLimit } from "../../logging/problem-memory.ts";
import { frontendsOf, placeText } from "../../model/frontend.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import type { ProxyState } from "../../model/proxy-state.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import type { RoutedPort } from "../../model/standing-ports.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { HealthVerdict } from "../server/health/proxy-health.ts";
import type { HttpHandler } from "../server/http/routes.ts";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { ProxierStatus } from "../sync/proxier-options.ts";

export interface InspectedFamily {
  readonly family: string;
  readonly state: ProxyState;
  readonly status: ProxierStatus;
  /** What only the mode knows. @default nothing */
  readonly backend?: Pick<Backend, "openConnections" | "led" | "chainHistory">;
}

/** An endpoint that this node leaves out. */
interface LeftOut {
  /** {@link ServicePortName.key} */
  readonly servicePort: string;
  readonly endpoint: string;
  readonly why: string;
}

/** The answer to `/status`. */
export interface StatusReport {
  readonly program: string;
  readonly mode: string;
  /** False if the mode is the default, which is going to change. */
  readonly isModeSet?: boolean;
  readonly node: string;
  readonly isHealthy: boolean;
  readonly failures: readonly { readonly subject: string; readonly reason: string }[];
  /** The longest time that the API server has been silent about a resource; absent if there is no API server. */
  readonly silentMs?: number;
  /** How full connection tracking is; absent if unknown. */
  readonly connectionTracking?: ConntrackStatistics & { readonly notes: readonly string[] };
  /** What the node cannot do, and why. */
  readonly limits: readonly NodeLimit[];
  /** When base chains of nftables were registered; absent if that was not followed. */
  readonly chainHistory?: ChainHistory | undefined;
  readonly process: { readonly uptimeSeconds: number; readonly residentBytes: number };
  /** Milliseconds from the first change to the rules in the kernel, over the remembered syncs; null before the first. */
  readonly syncs: { readonly count: number; readonly p50Ms: number; readonly p99Ms: number } | null;
  readonly families: readonly (Omit<ProxierStatus, "failures" | "refused"> & {
    readonly family: string;
    readonly servicePorts: number;
    readonly endpoints: number;
    /** Milliseconds since the last successful sync; null before the first. */
    readonly lastSyncAgeMs: number | null;
    /** The endpoints that do not answer, and so get no new connections. */
    readonly leftOut?: readonly LeftOut[];
    /** Service ports that the kernel refused: what is in force for them. */
    readonly refused?: readonly object[];
  })[];
}

/** One line of the answer to `/services`. */
export interface ServiceLine {
  readonly servicePort: string;
  readonly protocol: string;
  readonly family: string;
  readonly frontends: readonly { readonly at: string; readonly kind: string; readonly fate: string }[];
  /** Share of connections, from 0 to 1, that each endpoint gets under the Cluster and the Local policy; null if that policy is not used. */
  readonly endpoints: readonly {
    readonly address: string;
    readonly cluster: number | null;
    readonly local: number | null;
    /** Connections there that the daemon carries now; only if it carries them. */
    readonly open?: number;
  }[];
}

export interface InspectedDaemon {
  readonly program: string;
  readonly mode: string;
  /** @default true */
  readonly isModeSet?: boolean;
  readonly node: string;
  readonly zone: () => string | undefined;
  readonly families: readonly InspectedFamily[];
  readonly verdict: () => HealthVerdict;
  readonly journal: SyncJournal;
  /** @default its flows are unknown */
  readonly conntrack?: ConntrackTable;
  /** Found at the start, or since. */
  readonly limits: () => readonly NodeLimit[];
  /** @default not reported */
  readonly config?: KubeProxyConfig;
}

/** A daemon with everything known about its node, for the page. */
export interface LiveFamily extends InspectedFamily {
  readonly family: IpFamily;
  readonly nodeIP: IpAddress;
  readonly detector: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
  readonly serviceCIDRs: () => readonly string[];
}

export interface LiveDaemon extends InspectedDaemon {
  readonly families: readonly LiveFamily[];
  readonly config: KubeProxyConfig;
  readonly podCIDRs: readonly string[];
  /** Warnings and errors of the log, newest first. */
  readonly problems: () => readonly LoggedProblem[];
}

/** Loads the page of a daemon, which takes its own samples until the signal aborts. */
export type LoadPage = (daemon: LiveDaemon, signal: AbortSignal) => Promise<HttpHandler>;

export function statusReport({
  program,
  mode,
  isModeSet = true,
  node,
  families,
  verdict,
  limits,
  journal,
}: InspectedDaemon): StatusReport {
  const { isHealthy, failures, families: health, silentMs } = verdict();
  return {
    ...{ program, mode, isModeSet, node, isHealthy },
    failures: failures.map(({ subject, reason }) => ({ subject, reason })),
    ...(silentMs !== undefined && { silentMs }),
    limits: limits(),
    process: { uptimeSeconds: Math.round(process.uptime()), residentBytes: residentBytes() },
    syncs: syncTimes(journal),
    families: families.map(({ family, state, status: { failures: _failures, refused = [], ...status } }) => ({
      family,
      ...status,
      servicePorts: state.services.size,
      endpoints: state.endpointCount,
      lastSyncAgeMs: health.find((one) => one.family === family)?.syncedAgoMs ?? null,
      leftOut: [...state.leftOut].flatMap(([servicePort, own]) =>
        Array.from(own, ([endpoint, why]) => ({ servicePort, endpoint, why })),
      ),
      refused: refused.map((one) => ({ ...one, inForce: one.inForce && portData(one.inForce) })),
    })),
  };
}

/** Without a free descriptor to read it, the highest value so far. */
function residentBytes(): number {
  return attempt(() => process.memoryUsage.rss()) ?? process.resourceUsage().maxRSS * 1024;
}

function syncTimes(journal: SyncJournal): StatusReport["syncs"] {
  const times = journal.after(0).records.map(({ stages: { waiting, model, rules } }) => waiting + model + rules);
  if (times.length === 0) return null;
  times.sort((a, b) => a - b);
  const at = (share: number) => Number((times[Math.ceil(share * times.length) - 1] ?? 0).toFixed(2));
  return { count: times.length, p50Ms: at(0.5), p99Ms: at(0.99) };
}

/**
 * Yields one line at a time, in the order of their keys, so that a large table is never whole in memory and its reader
 * can give way to the daemon's work. Leaves out what is removed meanwhile.
 *
 * @param service `namespace/name`; undefined asks for all.
 */
export function* serviceLines(
  { node, zone, families }: InspectedDaemon,
  service: string | undefined,
): Generator<ServiceLine, void> {
  for (const { family, state, backend } of families) {
    for (const key of [...state.services.keys()].sort()) {
      const port = state.services.get(key);
      if (port === undefined || (service !== undefined && port.name.service !== service)) continue;
      const all = state.endpoints.get(key) ?? [];
      const routing = routeServicePort(port, all, { nodeName: node, zone: zone() });
      const { cluster, local } = routing.categories;
      const used = { cluster: cluster && new Set(cluster), local: local && new Set(local) };
      const open = backend?.openConnections?.(key);
      const shareIn = (set: ReadonlySet<(typeof all)[number]> | undefined, endpoint: (typeof all)[number]) =>
        set === undefined ? null : set.has(endpoint) ? 1 / set.size : 0;
      yield {
        servicePort: port.name.text,
        protocol: port.protocol,
        family,
        frontends: frontendsOf(port, routing).map((one) => ({ at: placeText(one), kind: one.kind, fate: one.fate })),
        endpoints: all.map((endpoint) => ({
          address: endpoint.text,
          cluster: shareIn(used.cluster, endpoint),
          local: shareIn(used.local, endpoint),
          ...(open !== undefined && { open: open.get(endpoint.text) ?? 0 }),
        })),
      };
    }
  }
}

/** The answer to `/ports`: the ports of a Service as this node serves it, with everything that rules depend on. @param service `namespace/name` */
export function* portLines({ families }: InspectedDaemon, service: string): Generator<object, void> {
  for (const { family, state } of families) {
    for (const [servicePort, port] of state.services) {
      if (port.name.service !== service) continue;
      yield { servicePort, family, inForce: portData({ port, endpoints: state.endpoints.get(servicePort) ?? [] }) };
    }
  }
}

/** Without sets, which JSON does not have. */
function portData({ port, endpoints }: RoutedPort): object {
  return { port: { ...port, lostFrontends: port.lostFrontends && [...port.lostFrontends] }, endpoints };
}

/** The answer to `/connections`: those that connection tracking does not know, or knows only in part. Rejects if the kernel does. */
export async function ledFlows({ families }: InspectedDaemon): Promise<readonly LedFlow[]> {
  const flows: LedFlow[] = [];
  for (const { backend } of families) await backend?.led?.read((flow) => void flows.push(flow));
  return flows;
}
