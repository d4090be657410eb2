/** The cluster that the command line and the configuration name: an API server, or a folder of manifests instead. */

import { hostname } from "node:os";
import type { ObjectSource } from "../../model/object-source.ts";
import { programIdentity, userAgentProduct } from "../../program/program-identity.ts";
import type { Events } from "../cluster/apiserver/events/events.ts";
import type { Daemon } from "./daemon.ts";

type ClusterConnectionOptions = Pick<Daemon, "options" | "nodeName" | "gates" | "health" | "metrics" | "clock" | "log">;

interface ClusterConnection {
  readonly source: ObjectSource;
  /** Takes events about this node; with a folder of manifests they go nowhere. */
  readonly events: Events;
  /** Removes the taint `--startup-taint` from the Node, and from any Node that replaces it, until the signal aborts. Never rejects. */
  readonly removeStartupTaint: (signal: AbortSignal) => Promise<void>;
}

const NO_EVENTS: Events = { record() {}, run: async () => {}, idle: async () => {} };

/**
 * Prepares the connection; sends nothing yet. Loads only the code for the kind of cluster in use.
 *
 * @throws ClientConfigError if the kubeconfig is unusable.
 */
export async function connectCluster(daemon: ClusterConnectionOptions): Promise<ClusterConnection> {
  const { nodeName, gates, health, clock, log } = daemon;
  const { config, manifests, master, version, initOnly, startupTaint, inspectBindAddress } = daemon.options;
  const keepsPods = inspectBindAddress !== "";
  const { families } = daemon.metrics;
  if (manifests !== "") {
    const { createManifestsSource } = await import("../cluster/manifests/manifests-source.ts");
    const { ManifestReader } = await import("../cluster/manifests/manifest-reader.ts");
    const source = createManifestsSource({ dir: manifests, log, reader: new ManifestReader({ keepsPods }) });
    return { source, events: NO_EVENTS, removeStartupTaint: async () => {} };
  }
  const apiserver = await import("../cluster/apiserver/index.ts");
  const { createApiClient, createApiSource, EventRecorder, createLastHeard } = apiserver;
  const { createRestMetrics, loadClientConfig, prefersProtobuf, WATCHED_PLURALS } = apiserver;
  const { kubeconfig, qps, burst, acceptContentTypes, contentType } = config.clientConnection;
  const clientConfig = await loadClientConfig({ kubeconfig, master, log });
  const observer = createRestMetrics(families, clock);
  const product = userAgentProduct(programIdentity());
  const client = createApiClient({ config: clientConfig, qps, burst, version, product, clock, log, observer });
  const onHeard = createLastHeard(families, clock, WATCHED_PLURALS);
  const source = createApiSource({
    transport: client.newTransport(),
    nodeName,
    resyncPeriodMs: config.configSyncPeriodMs,
    // Enough for --init-only.
    onlyNode: initOnly,
    keepsPods,
    streamsLists: gates.isEnabled("WatchListClient"),
    takesProtobuf: prefersProtobuf(acceptContentTypes || contentType),
    onProblem: (resource, problem) => health.setClusterFailure(`watch of ${resource}`, problem),
    onHeard: (resource) => {
      onHeard(resource);
      health.setHeard(resource);
    },
    clock,
    log,
  });
  const events = new EventRecorder({
    transport: client.newTransport(),
    hostname: hostname(),
    uidOf: (subject) => source.uidOf(subject),
    clock,
    log,
  });
  const removeStartupTaint = async (signal: AbortSignal): Promise<void> => {
    if (startupTaint === "") return;
    const transport = client.newTransport();
    const uid = () => source.uidOf({ apiVersion: "v1", kind: "Node", name: nodeName });
    const onProblem = (problem: string | undefined) => health.setClusterFailure("start-up taint", problem);
    await apiserver.removeStartupTaint({ transport, nodeName, uid, key: startupTaint, clock, log, onProblem }, signal);
  };
  return { source, events, removeStartupTaint };
}
