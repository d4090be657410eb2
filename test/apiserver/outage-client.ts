/**
 * A node's watches in an outage, in a process of its own: `outage-client.ts TASK` with an {@link OutageTask} as JSON. Prints what the
 * process uses, once after each of the given numbers of attempts.
 */
import { readdirSync, readFileSync } from "node:fs";
import { createApiSource } from "../../src/agent/cluster/apiserver/api-source.ts";
import { createApiClient } from "../../src/agent/cluster/apiserver/connection/api-client.ts";
import type { Material } from "../../src/agent/cluster/apiserver/connection/client-config.ts";
import { UNSAID } from "../../src/agent/cluster/apiserver/connection/client-config.ts";
import { createRestMetrics } from "../../src/agent/cluster/apiserver/connection/rest-metrics.ts";
import { createLogger } from "../../src/logging/create-logger.ts";
import { createFamilies } from "../../src/metrics/metric-families.ts";
import { fastClock } from "./source-under-test.ts";

export interface OutageTask {
  readonly url: string;
  readonly isServerVerified: boolean;
  /** Undefined: the machine's roots. */
  readonly ca?: string | undefined;
  readonly clientCertificate?: { readonly certificate: Material; readonly key: Material } | undefined;
  readonly proxyUrl?: string | undefined;
  /** The longest silence that is waited for. */
  readonly silenceMs: number;
  readonly checkpoints: readonly number[];
}

/** What the process uses after so many attempts. */
export interface Usage {
  readonly attempts: number;
  readonly residentMb: number;
  /** Processor time so far. */
  readonly cpuMs: number;
  readonly descriptors: number;
  /** How each attempt ended: the first word of an error, or a status. */
  readonly endings: readonly string[];
}

const { url, isServerVerified, ca, clientCertificate, proxyUrl, silenceMs, checkpoints }: OutageTask = JSON.parse(
  process.argv[2] ?? "",
);
const stop = new AbortController();
const clock = fastClock(1_000);
const log = createLogger({ verbosity: 4, write: () => {} });
const metrics = createRestMetrics(createFamilies(), clock);
const endings = new Set<string>();
const due = [...checkpoints];
let attempts = 0;

function usage(): Usage {
  const [, kilobytes] = /^VmRSS:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8")) ?? [];
  const { user, system } = process.cpuUsage();
  return {
    attempts,
    residentMb: Number(kilobytes) / 1024,
    cpuMs: (user + system) / 1_000,
    descriptors: readdirSync("/proc/self/fd").length,
    endings: [...endings],
  };
}

const client = createApiClient({
  config: {
    ...UNSAID,
    server: new URL(url),
    isServerVerified,
    ca: ca === undefined ? undefined : { kind: "data", text: ca },
    clientCertificate,
    proxyUrl,
  },
  qps: -1,
  burst: 0,
  version: "v1.37.0",
  product: "kube-proxy-ts/1.2.3 (abc)",
  clock,
  log,
  observer: {
    ...metrics,
    answered(verb, host, code, seconds) {
      metrics.answered(verb, host, code, seconds);
      endings.add(code);
      attempts += 1;
      if (attempts < (due[0] ?? Number.POSITIVE_INFINITY)) return;
      due.shift();
      process.stdout.write(`${JSON.stringify(usage())}\n`);
      if (due.length === 0) stop.abort();
    },
  },
});
const source = createApiSource({
  transport: client.newTransport(),
  clock,
  log,
  nodeName: "node-a",
  resyncPeriodMs: 0,
  streamsLists: false,
  times: { listIdleMs: silenceMs },
});
await source.run({ onEvent() {}, onSynced() {} }, stop.signal);
process.exit(0);
