/** The cluster that the command line and the configuration name: an API server, or a folder of manifests in its place. */
import { hostname } from "node:os";
import type { Clock } from "../async/clock.ts";
import type { EventRecorder } from "../cluster/apiserver/events/events.ts";
import type { ObjectSource } from "../cluster/object-source.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { Logger } from "../logging/logger.ts";
import type { MetricFamilies } from "../metrics/metric-families.ts";
import { programIdentity, userAgentProduct } from "../program/program-identity.ts";

interface ClusterConnectionOptions {
  readonly config: KubeProxyConfig;
  /** Folder of manifests; undefined means the API server. */
  readonly manifests: string | undefined;
  /** URL that wins over the kubeconfig; empty when not given. */
  readonly master: string;
  readonly version: string;
  readonly nodeName: string;
  /** Nothing but the Node is read from an API server: enough for `--init-only`. */
  readonly onlyNode: boolean;
  /** Whether lists are asked for as streams (gate WatchListClient). */
  readonly streamsLists: boolean;
  /** Told when a resource cannot be watched, and with `undefined` when it can again. */
  readonly onWatchProblem: (resource: string, problem: string | undefined) => void;
  /** Where requests are counted. */
  readonly families: MetricFamilies;
  readonly clock: Clock;
  readonly log: Logger;
}

interface ClusterConnection {
  readonly source: ObjectSource;
  /** Takes events about this node; those of a folder have no reader. */
  readonly events: EventRecorder;
}

const NO_EVENTS: EventRecorder = { record() {}, run: async () => {}, idle: async () => {} };

/**
 * Prepares the connection; nothing is sent yet. Only the code of the kind of cluster that is used is loaded.
 *
 * @throws ClientConfigError when the kubeconfig cannot be used.
 */
export async function connectCluster(options: ClusterConnectionOptions): Promise<ClusterConnection> {
  const { config, manifests, master, version, nodeName, onlyNode, families, clock, log } = options;
  if (manifests !== undefined) {
    const { createManifestsSource } = await import("../cluster/manifests/index.ts");
    return { source: createManifestsSource({ dir: manifests, log }), events: NO_EVENTS };
  }
  const apiserver = await import("../cluster/apiserver/index.ts");
  const { createApiClient, createApiSource, createEventRecorder, createLastHeard } = apiserver;
  const { createRestMetrics, loadClientConfig, WATCHED_PLURALS } = apiserver;
  const { kubeconfig, qps, burst } = config.clientConnection;
  const clientConfig = await loadClientConfig({ kubeconfig, master, log });
  const observer = createRestMetrics(families, clock);
  const product = userAgentProduct(programIdentity());
  const client = createApiClient({ config: clientConfig, qps, burst, version, product, clock, log, observer });
  const source = createApiSource({
    transport: client.newTransport(),
    nodeName,
    resyncPeriodMs: config.configSyncPeriodMs,
    onlyNode,
    streamsLists: options.streamsLists,
    onProblem: options.onWatchProblem,
    onHeard: createLastHeard(families, clock, WATCHED_PLURALS),
    clock,
    log,
  });
  const events = createEventRecorder({
    transport: client.newTransport(),
    hostname: hostname(),
    uidOf: (subject) => source.uidOf(subject),
    clock,
    log,
  });
  return { source, events };
}
