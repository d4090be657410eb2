/** The cluster that the command line and the configuration name: an API server, or a folder of manifests in its place. */
import type { ObjectSource } from "../cluster/object-source.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { Logger } from "../logging/logger.ts";
import type { Clock } from "../sync/clock.ts";

export interface ClusterConnectionOptions {
  readonly config: KubeProxyConfig;
  /** Folder of manifests; undefined means the API server. */
  readonly manifests: string | undefined;
  /** URL that wins over the kubeconfig; empty when not given. */
  readonly master: string;
  readonly version: string;
  readonly nodeName: string;
  /** Everything but the Node is read only from then on. */
  readonly wanted: Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ClusterConnection {
  readonly source: ObjectSource;
}

/**
 * Prepares the connection; nothing is sent yet. Only the code of the kind of cluster that is used is loaded.
 *
 * @throws ClientConfigError when the kubeconfig cannot be used.
 */
export async function connectCluster(options: ClusterConnectionOptions): Promise<ClusterConnection> {
  const { config, manifests, master, version, nodeName, wanted, clock, log } = options;
  if (manifests !== undefined) {
    const { createManifestsSource } = await import("../cluster/manifests/index.ts");
    return { source: createManifestsSource({ dir: manifests, log }) };
  }
  const { createApiSource, loadClientConfig } = await import("../cluster/apiserver/index.ts");
  const { kubeconfig, qps, burst } = config.clientConnection;
  const clientConfig = await loadClientConfig({ kubeconfig, master, log });
  const resyncPeriodMs = config.configSyncPeriodMs;
  return {
    source: createApiSource({
      config: clientConfig,
      qps,
      burst,
      version,
      nodeName,
      resyncPeriodMs,
      wanted,
      clock,
      log,
    }),
  };
}
