/** The API server as a source of cluster objects. */
import type { Clock } from "../../async/clock.ts";
import type { Logger } from "../../logging/logger.ts";
import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { ObjectKind, ObjectKinds, ObjectSink, ObjectSource } from "../object-source.ts";
import type { ApiTransport } from "./connection/transport.ts";
import type { EventSubject } from "./events/event-object.ts";
import { SharedCauses } from "./watch/failure-log.ts";
import { Recovery } from "./watch/recovery.ts";
import { Reflector } from "./watch/reflector.ts";
import type { ReflectorTimes } from "./watch/reflector-times.ts";
import { CLUSTER_RESOURCES, nodeResource, type WatchedResource } from "./watch/resources.ts";

export interface ApiSourceOptions {
  readonly transport: ApiTransport;
  readonly clock: Clock;
  readonly log: Logger;
  /** Only the Node of this name is watched. */
  readonly nodeName: string;
  /** How often everything is delivered again as updates (`configSyncPeriod`); 0 for never. */
  readonly resyncPeriodMs: number;
  /** Nothing but the Node is read. @default false */
  readonly onlyNode?: boolean;
  /** Keeps the names of pods, which only people ask for. @default false */
  readonly keepsPods?: boolean;
  /** Whether lists are asked for as streams (gate WatchListClient). @default true */
  readonly streamsLists?: boolean;
  /** Whether the server may answer in protobuf. @default true */
  readonly takesProtobuf?: boolean;
  /** Called when a resource (plural name) cannot be watched, and with `undefined` when it can again. */
  readonly onProblem?: (resource: string, problem: string | undefined) => void;
  /** Called whenever the server has sent something about a resource. */
  readonly onHeard?: OnHeard;
  /** For tests. */
  readonly times?: Partial<ReflectorTimes>;
  /** For tests. @default Math.random */
  readonly random?: () => number;
}

/** The source, and what events need to know of its objects. */
interface ApiSource extends ObjectSource {
  /** The UID of an object as last delivered; undefined when it is not known. */
  uidOf(subject: EventSubject): string | undefined;
}

/** The delivered objects of each kind, by `namespace/name` or name. */
type Records = Map<ObjectKind, (key: string) => ObjectKinds[ObjectKind] | undefined>;

/**
 * Makes the source. Its `run` rejects at the start when the files that the configuration names cannot be used (a
 * ClientConfigError), and later only when a receiver of events throws; everything else is waited out.
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
  const { transport, nodeName, onlyNode = false, keepsPods = false } = options;
  await transport.checkFiles();
  if (signal.aborted) return;
  const failed = new AbortController();
  const ended = AbortSignal.any([signal, failed.signal]);
  const reflect = async <K extends ObjectKind>(resource: WatchedResource<K>): Promise<void> => {
    try {
      await follow(resource, { ...options, recovery, causes }, records, sink, ended);
    } catch (error) {
      failed.abort();
      throw error;
    }
  };
  const recovery = new Recovery(options.clock, options.random ?? Math.random);
  const causes = new SharedCauses();
  const [services, endpointSlices, serviceCIDRs] = CLUSTER_RESOURCES;
  try {
    // The Node's request is the first: the rest of the start waits for it.
    const all = [reflect(nodeResource(nodeName))];
    if (!onlyNode) all.push(reflect(services), reflect({ ...endpointSlices, keepsPods }), reflect(serviceCIDRs));
    await Promise.all(all);
  } finally {
    transport.close();
  }
}

/** By all that is watched. */
interface Shared {
  readonly recovery: Recovery;
  readonly causes: SharedCauses;
}

async function follow<K extends ObjectKind>(
  resource: WatchedResource<K>,
  options: ApiSourceOptions & Shared,
  records: Records,
  sink: ObjectSink,
  signal: AbortSignal,
): Promise<void> {
  const { log, onProblem, onHeard } = options;
  const { controller, plural } = resource;
  log.info(`Starting ${controller} controller`);
  log.info("Waiting for caches to sync", { controller });
  const reflector = new Reflector({
    ...options,
    resource,
    sink: {
      onEvent: (kindOfEvent, event) => sink.onEvent(kindOfEvent, event),
      onSynced: (kindOfEvent) => {
        log.info("Caches are synced", { controller });
        sink.onSynced(kindOfEvent);
      },
    },
    onProblem: (problem) => onProblem?.(plural, problem),
    onHeard: () => onHeard?.(plural),
  });
  records.set(resource.kind, (key) => reflector.record(key));
  await reflector.run(signal);
}

/** Told each time the API server has said something about a resource (plural name). */
export type OnHeard = (resource: string) => void;

/**
 * Defines the gauge. A quiet resource is heard of whenever its watch ends and begins again, every 5 to 10 minutes.
 *
 * @param resources plural names of all that will be watched; the time of the call counts until they are heard of.
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
