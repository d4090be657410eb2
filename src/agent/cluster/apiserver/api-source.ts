/** The API server as a source of cluster objects. */
import type { Clock } from "../../../async/clock.ts";
import type { MetricFamilies } from "../../../metrics/metric-families.ts";
import type { ObjectKind, ObjectKinds, ObjectSink, ObjectSource } from "../../../model/object-source.ts";
import type { EventSubject } from "./events/event-object.ts";
import { Recovery } from "./watch/recovery.ts";
import { type OnHeard, Reflector, type WatchSettings } from "./watch/reflector.ts";
import { CLUSTER_RESOURCES, nodeResource, type WatchedResource } from "./watch/resources.ts";

export interface ApiSourceOptions extends WatchSettings {
  /** Watches only the Node of this name. */
  readonly nodeName: string;
  /** Reads nothing but the Node. @default false */
  readonly onlyNode?: boolean;
  /** Keeps pod names, which only commands need. @default false */
  readonly keepsPods?: boolean;
}

/** An {@link ObjectSource} that also knows the UIDs that events need. */
interface ApiSource extends ObjectSource {
  /** The UID of an object as last delivered; undefined if unknown. */
  uidOf(subject: EventSubject): string | undefined;
}

/** The delivered objects of each kind, by `namespace/name` or name. */
type Records = Map<ObjectKind, (key: string) => ObjectKinds[ObjectKind] | undefined>;

/**
 * Creates the source. Its `run` rejects at the start with a ClientConfigError if the configuration's files cannot be
 * used, and later only if a sink throws; it retries after everything else.
 */
export function createApiSource(options: ApiSourceOptions): ApiSource {
  const records: Records = new Map();
  return {
    run: (sink, signal) => run(options, records, sink, signal),
    uidOf({ kind, namespace, name }) {
      const key = namespace === undefined ? name : `${namespace}/${name}`;
      const record = records.get(kind === "Node" ? "nodes" : "services")?.(key);
      return record !== undefined && "uid" in record && record.uid !== "" ? record.uid : undefined;
    },
  };
}

async function run(options: ApiSourceOptions, records: Records, sink: ObjectSink, signal: AbortSignal): Promise<void> {
  const { transport, clock, log, nodeName, onlyNode = false, keepsPods = false, random = Math.random } = options;
  await transport.checkFiles();
  if (signal.aborted) return;
  const failed = new AbortController();
  const ended = AbortSignal.any([signal, failed.signal]);
  const shared = { recovery: new Recovery(clock, random), causes: new Map() };
  const reflect = async <K extends ObjectKind>(resource: WatchedResource<K>): Promise<void> => {
    const { controller } = resource;
    log.info(`Starting ${controller} controller`);
    log.info("Waiting for caches to sync", { controller });
    const told: ObjectSink = {
      onEvent: (kind, event) => sink.onEvent(kind, event),
      onMisread: (service, problem) => sink.onMisread?.(service, problem),
      onSynced(kind) {
        log.info("Caches are synced", { controller });
        sink.onSynced(kind);
      },
    };
    const reflector = new Reflector({ ...options, ...shared, resource, sink: told });
    records.set(resource.kind, (key) => reflector.record(key));
    try {
      await reflector.run(ended);
    } catch (error) {
      failed.abort();
      throw error;
    }
  };
  const [services, endpointSlices, serviceCIDRs] = CLUSTER_RESOURCES;
  try {
    // The Node is requested first: the rest of the start waits for it.
    const all = [reflect(nodeResource(nodeName))];
    if (!onlyNode) all.push(reflect(services), reflect({ ...endpointSlices, keepsPods }), reflect(serviceCIDRs));
    await Promise.all(all);
  } finally {
    transport.close();
  }
}

/**
 * Registers the gauge. An idle resource is still heard from when its watch is renewed, every 5 to 10 minutes.
 *
 * @param resources plural names of all watched resources; until one is heard from, the time of this call counts.
 */
export function createLastHeard(families: MetricFamilies, clock: Clock, resources: readonly string[]): OnHeard {
  const gauge = families.gauge({
    name: "kubeproxy_ts_source_last_heard_timestamp_seconds",
    help: "Unix time at which the API server last said anything about a resource; the start until it has.",
    stability: "none",
    labels: ["resource"],
  });
  const onHeard: OnHeard = (resource) => gauge.set({ resource }, clock.now() / 1000);
  for (const resource of resources) onHeard(resource);
  return onHeard;
}
