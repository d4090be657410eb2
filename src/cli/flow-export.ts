/**
 * Flows for other programs: JSON lines in a file, or logs of OTLP over HTTP in JSON (opentelemetry.io/docs/specs/otlp) with the attributes
 * of the semantic conventions. Nothing waits for a slow reader: its losses are counted.
 */
import { createWriteStream } from "node:fs";
import { hostname } from "node:os";
import type { NamedFlow } from "../explain/flows.ts";
import { messageOf } from "../logging/message-of.ts";
import { familyOf, parseHostPort } from "../net/ip.ts";
import { programIdentity } from "../program/program-identity.ts";
import { countingLosses, jsonLine, type Note } from "./flow-sinks.ts";
import type { FlowTaker } from "./flows-watch.ts";

/** Limits of what may wait for a reader. */
const MOST_BYTES = 16 * 1024 * 1024;
const MOST_RECORDS = 20_000;
const BATCH = 1_000;
const SEND_EVERY_MS = 1_000;
const REQUEST_LIMIT_MS = 5_000;
const TOTALS_EVERY_MS = 10_000;
/** AGGREGATION_TEMPORALITY_CUMULATIVE */
const CUMULATIVE = 2;
/** Answers after which the same batch is sent again. */
const RETRIED = new Set([429, 502, 503, 504]);

/** Appends a line per flow to a file. Rejects with the system's error if the file cannot be opened. */
export async function fileSink(path: string, note: Note): Promise<FlowTaker> {
  const stream = createWriteStream(path, { flags: "a", mode: 0o600 });
  await new Promise((resolve, reject) => stream.once("open", resolve).once("error", reject));
  let isBroken = false;
  stream.on("error", (error) => {
    isBroken = true;
    note(messageOf(error));
  });
  const take = (flow: NamedFlow): boolean => {
    if (isBroken || stream.writableLength > MOST_BYTES) return false;
    stream.write(jsonLine(flow));
    return true;
  };
  const close = async () => {
    if (!isBroken) await new Promise<void>((resolve) => stream.end(resolve));
    return 0;
  };
  return countingLosses({ take, close }, note);
}

/** One endpoint of a collector. A failure is reported once, and again only after a success. */
class Receiver {
  readonly #target: URL;
  readonly #note: Note;
  #hasComplained = false;

  constructor(target: URL, note: Note) {
    this.#target = target;
    this.#note = note;
  }

  /** @returns the HTTP status; undefined without an answer. */
  async post(body: object): Promise<number | undefined> {
    try {
      const response = await fetch(this.#target, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(REQUEST_LIMIT_MS),
      });
      await response.arrayBuffer();
      if (response.ok) this.#hasComplained = false;
      else this.#complain(`answered with ${response.status}`);
      return response.status;
    } catch (error) {
      this.#complain(messageOf(error instanceof Error && error.cause !== undefined ? error.cause : error));
      return undefined;
    }
  }

  #complain(why: string): void {
    if (!this.#hasComplained) this.#note(`${this.#target.href}: ${why}`);
    this.#hasComplained = true;
  }
}

/**
 * Sends flows to a collector as logs, and their sums as metrics.
 *
 * @param url its address; `/v1/logs` is added if it has no path. Metrics go to the same path with `metrics` in place of `logs`.
 */
export function otlpSink(url: URL, note: Note): FlowTaker {
  const target = url.pathname === "/" ? new URL("/v1/logs", url) : url;
  const metricsTarget = new URL(target.href.replace(/\/logs$/, "/metrics"));
  const logs = new Receiver(target, note);
  const metrics = metricsTarget.href === target.href ? undefined : new Receiver(metricsTarget, note);
  const totals = new Map<string, number>();
  const startMs = Date.now();
  let waiting: object[] = [];
  let sending: Promise<void> | undefined;
  let lost = 0;
  const send = async (): Promise<void> => {
    while (waiting.length > 0) {
      const batch = waiting.slice(0, BATCH);
      const status = await logs.post(logsOf(batch));
      if (status === undefined || RETRIED.has(status)) return;
      if (status >= 300) lost += batch.length;
      waiting = waiting.slice(batch.length);
    }
  };
  const trySend = (): Promise<void> => {
    sending ??= send().finally(() => {
      sending = undefined;
    });
    return sending;
  };
  // No retries: these are sums, so the next ones include what a lost message said.
  const sendTotals = async () => await metrics?.post(metricsOf(totals, startMs));
  const timers = [
    setInterval(() => void trySend(), SEND_EVERY_MS),
    setInterval(() => void sendTotals(), TOTALS_EVERY_MS),
  ];
  return countingLosses(
    {
      take(flow) {
        const key = `${flow.servicePort}\t${flow.protocol}\t${flow.ended ?? ""}`;
        totals.set(key, (totals.get(key) ?? 0) + 1);
        if (waiting.length >= MOST_RECORDS) return false;
        waiting.push(recordOf(flow, Date.now()));
        return true;
      },
      async close() {
        timers.forEach(clearInterval);
        await trySend();
        await trySend();
        await sendTotals();
        return lost + waiting.length;
      },
    },
    note,
  );
}

type Value = string | number | boolean;

function attributesOf(values: Readonly<Record<string, Value | null>>): readonly object[] {
  const known = Object.entries(values).filter(([, value]) => value !== null);
  return known.map(([key, value]) => {
    if (typeof value === "string") return { key, value: { stringValue: value } };
    if (typeof value === "boolean") return { key, value: { boolValue: value } };
    return { key, value: Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value } };
  });
}

/** The OTLP resource: this program on this node. */
function resource(): object {
  const { name, version } = programIdentity();
  return { attributes: attributesOf({ "service.name": name, "service.version": version, "host.name": hostname() }) };
}

const scope = () => ({ name: "kube-proxy flows", version: programIdentity().version });

function logsOf(logRecords: readonly object[]): object {
  return { resourceLogs: [{ resource: resource(), scopeLogs: [{ scope: scope(), logRecords }] }] };
}

/** @param totals by service port, protocol and end: sums since the start. */
function metricsOf(totals: ReadonlyMap<string, number>, startMs: number): object {
  const times = { startTimeUnixNano: `${startMs}000000`, timeUnixNano: `${Date.now()}000000` };
  const dataPoints = [...totals].map(([key, count]) => {
    const [servicePort = "", protocol = "", end = ""] = key.split("\t");
    const attributes = attributesOf({
      ...serviceAttributes(servicePort),
      ...{ "network.transport": protocol.toLowerCase(), "kube_proxy.end": end === "" ? null : end },
    });
    return { ...times, asInt: String(count), attributes };
  });
  const sum = { aggregationTemporality: CUMULATIVE, isMonotonic: true, dataPoints };
  const metrics = [{ name: "kube_proxy.flows", unit: "{flow}", sum }];
  return { resourceMetrics: [{ resource: resource(), scopeMetrics: [{ scope: scope(), metrics }] }] };
}

function serviceAttributes(servicePort: string) {
  const [, namespace = "", service = ""] = /^([^/]+)\/([^:]+)/.exec(servicePort) ?? [];
  return { "k8s.namespace.name": namespace, "k8s.service.name": service, "kube_proxy.service_port": servicePort };
}

/** Attributes without a name in the conventions begin with `kube_proxy.`. */
function recordOf(flow: NamedFlow, nowMs: number): object {
  const { servicePort, protocol, client, endpoint, frontend, ended, sent, received } = flow;
  const [source, destination, server] = [client, endpoint, frontend].map((place) => parseHostPort(place ?? ""));
  const timeUnixNano = `${nowMs}000000`;
  return {
    ...{ timeUnixNano, observedTimeUnixNano: timeUnixNano, severityNumber: 9, severityText: "INFO" },
    eventName: ended === null ? "kube_proxy.flow" : "kube_proxy.flow.end",
    body: {
      stringValue:
        `${protocol} ${client} → ${servicePort} (${frontend}) → ${endpoint ?? "?"} ${ended ?? flow.state ?? ""}`.trim(),
    },
    attributes: attributesOf({
      ...{ "source.address": source?.address ?? null, "source.port": source?.port ?? null },
      ...{ "destination.address": destination?.address ?? null, "destination.port": destination?.port ?? null },
      ...{ "server.address": server?.address ?? null, "server.port": server?.port ?? null },
      ...{
        "network.transport": protocol.toLowerCase(),
        "network.type": source === undefined ? null : familyOf(source.address).toLowerCase(),
      },
      ...serviceAttributes(servicePort),
      "kube_proxy.source.pod": flow.clientPod,
      ...{ "kube_proxy.destination.pod": flow.endpointPod, "kube_proxy.state": flow.state, "kube_proxy.end": ended },
      ...{ "kube_proxy.is_stale": flow.isStale, "kube_proxy.age": flow.ageSeconds, "kube_proxy.rtt_ms": flow.rttMs },
      ...{ "kube_proxy.retransmits": flow.retransmits, "kube_proxy.sent.packets": sent?.packets ?? null },
      ...{ "kube_proxy.sent.bytes": sent?.bytes ?? null, "kube_proxy.received.packets": received?.packets ?? null },
      "kube_proxy.received.bytes": received?.bytes ?? null,
    }),
  };
}
