/** `Event` objects of events.k8s.io/v1, as upstream's recorder creates them (reference operation.md §8.4). */

export interface EventSubject {
  readonly apiVersion: "v1";
  readonly kind: "Node" | "Service";
  readonly name: string;
  /** Absent for a Node. */
  readonly namespace?: string;
  readonly uid?: string;
}

export interface EventFacts {
  readonly regarding: EventSubject;
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly action: string;
  /** May be empty. */
  readonly note: string;
}

/** An event that happened more than once. */
interface EventSeries {
  readonly count: number;
  /** Unix time. */
  readonly lastObservedMs: number;
}

const REPORTING_CONTROLLER = "kube-proxy";
/** The namespace of events about objects that have none. */
const DEFAULT_NAMESPACE = "default";
/** The API server rejects longer notes. */
const MAX_NOTE_BYTES = 1024;

export function eventNamespace({ regarding }: EventFacts): string {
  return regarding.namespace ?? DEFAULT_NAMESPACE;
}

/** An event object that was or will be created at the API server. */
export interface EventState {
  readonly facts: EventFacts;
  readonly name: string;
  /** Unix time. */
  readonly timeMs: number;
  readonly series: EventSeries | undefined;
}

/** @param hostname the host's own name. */
export function eventObject({ facts, name, timeMs, series }: EventState, hostname: string): object {
  const { regarding, type, reason, action, note } = facts;
  return {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name, namespace: eventNamespace(facts) },
    eventTime: microTime(timeMs),
    ...(series === undefined ? {} : { series: seriesObject(series) }),
    reportingController: REPORTING_CONTROLLER,
    reportingInstance: `${REPORTING_CONTROLLER}-${hostname}`,
    action,
    reason,
    regarding,
    ...(note === "" ? {} : { note: shortened(note) }),
    type,
  };
}

function shortened(note: string): string {
  if (Buffer.byteLength(note) <= MAX_NOTE_BYTES) return note;
  // A truncated character becomes U+FFFD, which is removed.
  return Buffer.from(note)
    .subarray(0, MAX_NOTE_BYTES)
    .toString("utf8")
    .replace(/\uFFFD+$/, "");
}

/** The `series` field. */
export function seriesObject({ count, lastObservedMs }: EventSeries): object {
  return { count, lastObservedTime: microTime(lastObservedMs) };
}

/** `2026-01-01T00:00:00.000000Z`: the API's MicroTime. */
function microTime(unixMs: number): string {
  return `${new Date(unixMs).toISOString().slice(0, -1)}000Z`;
}
