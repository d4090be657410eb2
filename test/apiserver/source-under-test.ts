/** An API source with a test API server and an accelerated clock, whose log and deliveries are recorded. */

import { type ApiSourceOptions, createApiSource } from "../../src/agent/cluster/apiserver/api-source.ts";
import { createApiClient } from "../../src/agent/cluster/apiserver/connection/api-client.ts";
import { type ClientConfig, UNSAID } from "../../src/agent/cluster/apiserver/connection/client-config.ts";
import { type RecordingLog, recordingLog } from "../../src/agent/cluster/apiserver/testing/recording-log.ts";
import { type Clock, sleepWith, systemClock } from "../../src/async/clock.ts";
import type { ObjectKind } from "../../src/model/object-source.ts";
import { until } from "../../testkit/support/patience.ts";
import { RecordingSink } from "./recording-sink.ts";
import { TestApiServer } from "./test-api-server.ts";

const KINDS: readonly ObjectKind[] = ["nodes", "services", "endpointSlices", "serviceCIDRs"];

/** A minute of real time for the server, on a clock that runs 100 times as fast. */
const BUSY_MS = 6_000_000;
/** For objects of megabytes: on the fast clock of a busy machine, a list or a watch of them would be given up too soon. */
export const TIMES_FOR_LARGE = { listIdleMs: BUSY_MS, watchAnswerMs: BUSY_MS, watchTimeoutMs: BUSY_MS };

/** The machine's clock, on which a second of waiting takes only 1/`factor` seconds. */
export function fastClock(factor: number): Clock {
  const setTimer: Clock["setTimer"] = (delayMs, callback) => systemClock.setTimer(delayMs / factor, callback);
  return {
    now: () => systemClock.now(),
    monotonicMs: () => systemClock.monotonicMs() * factor,
    setTimer,
    sleep: (delayMs, signal) => sleepWith(setTimer, delayMs, signal),
  };
}

export interface SourceUnderTest {
  readonly server: TestApiServer;
  readonly sink: RecordingSink;
  readonly log: RecordingLog;
  /** Each reported resource and problem. */
  readonly problems: (readonly [string, string | undefined])[];
  /** Rejects if the source failed. */
  readonly ended: Promise<void>;
  stop(): Promise<void>;
}

export interface StartOptions extends Partial<Omit<ApiSourceOptions, "transport" | "log">> {
  readonly config?: Partial<ClientConfig>;
  /** Called before the source starts. */
  readonly prepare?: (server: TestApiServer) => void;
  /** Waits until everything is synced. @default true */
  readonly waitsForSync?: boolean;
}

/** The scope that cleans up: a test, or one case of a property. */
export interface Lifetime {
  after(callback: () => Promise<void>): void;
}

/** Starts server and source; both end with the test. */
export async function startSource(t: Lifetime, options: StartOptions = {}): Promise<SourceUnderTest> {
  const { config, prepare, waitsForSync = true, ...rest } = options;
  const server = await TestApiServer.start();
  prepare?.(server);
  server.store.restart();
  const sink = new RecordingSink();
  const log = recordingLog();
  const problems: [string, string | undefined][] = [];
  const stop = new AbortController();
  const clock = rest.clock ?? fastClock(100);
  const client = createApiClient({
    config: {
      ...UNSAID,
      server: new URL(server.url),
      ca: { kind: "data", text: server.authority.certificate },
      ...config,
    },
    qps: -1,
    burst: 0,
    version: "v1.36.2",
    product: "kube-proxy-ts/1.2.3 (abc)",
    clock,
    log,
  });
  const ended = createApiSource({
    transport: client.newTransport(),
    clock,
    log,
    nodeName: "node-a",
    resyncPeriodMs: 0,
    onProblem: (resource, problem) => problems.push([resource, problem]),
    ...rest,
    // On a busy machine, half a second of real time (a minute on the fast clock) is too short to start a list.
    times: { streamIdleMs: BUSY_MS, ...rest.times },
  }).run(sink, stop.signal);
  ended.catch(() => {});
  t.after(async () => {
    stop.abort();
    await ended.catch(() => {});
    await server.close();
  });
  const source = {
    server,
    sink,
    log,
    problems,
    ended,
    stop: async () => {
      stop.abort();
      await ended;
    },
  };
  if (waitsForSync) await Promise.race([ended, until("sync of all kinds", () => sink.synced.length === KINDS.length)]);
  return source;
}

/** Waits until a change made now has arrived, and with it all earlier ones. */
export async function settled({ server, sink }: SourceUnderTest, plural: "services" | "endpointslices"): Promise<void> {
  const kind = plural === "services" ? "services" : "endpointSlices";
  const name = `marker-${server.store.version}`;
  const labels = { "kubernetes.io/service-name": "marker" };
  server.put(
    plural,
    plural === "services"
      ? {
          metadata: { namespace: "default", name },
          spec: { clusterIP: "10.111.0.1", clusterIPs: ["10.111.0.1"], ports: [{ port: 1, protocol: "TCP" }] },
        }
      : { metadata: { namespace: "default", name, labels }, addressType: "IPv4", endpoints: [], ports: [] },
  );
  await until(`${name} to arrive`, () => sink.state[kind].has(`default/${name}`));
  server.store.delete(plural, `default/${name}`);
  await until(`${name} to go`, () => !sink.state[kind].has(`default/${name}`));
  sink.events[kind] = sink.events[kind].filter((event) => !event.endsWith(name));
}
