/**
 * Measurements of the process itself: upstream's `process_*` families, and Node's runtime in place of Go's (reference
 * operation.md §12.4). Everything is read at each scrape; only garbage collections are counted as they happen.
 *
 * There is no event-loop delay monitor: its 10 ms timer costs an idle agent half a percent of a core. The lag is
 * measured at each scrape.
 */
import { readdirSync, readFileSync } from "node:fs";
import { constants, PerformanceObserver } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import type { MetricFamilies, ReadValue } from "../../../metrics/metric-families.ts";

const GC_BUCKETS = [0.001, 0.01, 0.1, 1, 2, 5];
const GC_KINDS: ReadonlyMap<number, string> = new Map([
  [constants.NODE_PERFORMANCE_GC_MAJOR, "major"],
  [constants.NODE_PERFORMANCE_GC_MINOR, "minor"],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, "incremental"],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, "weakcb"],
]);

/** When the process started, in Unix seconds. */
export function processStartSeconds(): number {
  return Date.now() / 1000 - process.uptime();
}

function statusBytes(field: string): number | undefined {
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(readFileSync("/proc/self/status", "utf8"));
  return match === null ? undefined : Number(match[1]) * 1024;
}

/** The soft limit; `unlimited` counts as unknown. */
function softLimit(name: string): number | undefined {
  const match = new RegExp(`^${name} +(\\d+)`, "m").exec(readFileSync("/proc/self/limits", "utf8"));
  return match === null ? undefined : Number(match[1]);
}

/** A counter of the IP layer: one line has the names, the next the values. */
function ipCounter(name: string): number | undefined {
  const [names, values] = [...readFileSync("/proc/self/net/netstat", "utf8").matchAll(/^IpExt: (.*)$/gm)].map(
    ([, words = ""]) => words.split(" "),
  );
  const value = values?.[names?.indexOf(name) ?? -1];
  return value === undefined ? undefined : Number(value);
}

function defineProcess(families: MetricFamilies): void {
  const startSeconds = Math.round(processStartSeconds() * 100) / 100;
  const define = (type: "counter" | "gauge", name: string, help: string, read: ReadValue) =>
    families.scraped(type, { name: `process_${name}`, help, stability: "none" }, read);
  define("counter", "cpu_seconds_total", "Total user and system CPU time spent in seconds.", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  define("gauge", "resident_memory_bytes", "Resident memory size in bytes.", () => process.memoryUsage.rss());
  define("gauge", "virtual_memory_bytes", "Virtual memory size in bytes.", () => statusBytes("VmSize"));
  define("gauge", "virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", () =>
    softLimit("Max address space"),
  );
  define("gauge", "open_fds", "Number of open file descriptors.", () => readdirSync("/proc/self/fd").length - 1);
  define("gauge", "max_fds", "Maximum number of open file descriptors.", () => softLimit("Max open files"));
  define("counter", "network_receive_bytes_total", "Bytes received in the network namespace of the process.", () =>
    ipCounter("InOctets"),
  );
  define("counter", "network_transmit_bytes_total", "Bytes sent in the network namespace of the process.", () =>
    ipCounter("OutOctets"),
  );
  define("gauge", "start_time_seconds", "Start time of the process since unix epoch in seconds.", () => startSeconds);
}

async function eventLoopLagSeconds(): Promise<number> {
  const start = performance.now();
  await new Promise((resolve) => setImmediate(resolve));
  return (performance.now() - start) / 1000;
}

function gcKind(detail: unknown): string | undefined {
  if (typeof detail !== "object" || detail === null || !("kind" in detail)) return undefined;
  return typeof detail.kind === "number" ? GC_KINDS.get(detail.kind) : undefined;
}

function defineNode(families: MetricFamilies): void {
  const define = (name: string, help: string, read: ReadValue) =>
    families.scraped("gauge", { name: `nodejs_${name}`, help, stability: "none" }, read);
  define("eventloop_lag_seconds", "Lag of the event loop in seconds, measured at the scrape.", eventLoopLagSeconds);
  define("heap_size_total_bytes", "Heap size of the runtime in bytes.", () => getHeapStatistics().total_heap_size);
  define("heap_size_used_bytes", "Used heap of the runtime in bytes.", () => getHeapStatistics().used_heap_size);
  define("external_memory_bytes", "Memory of the runtime outside its heap in bytes.", () => {
    return getHeapStatistics().external_memory;
  });
  define("active_resources_total", "Sockets, timers, requests and other resources that are in use.", () => {
    return process.getActiveResourcesInfo().length;
  });
  const [major = "", minor = "", patch = ""] = process.versions.node.split(".");
  families
    .gauge({
      name: "nodejs_version_info",
      help: "Version of the runtime.",
      stability: "none",
      labels: ["version", "major", "minor", "patch"],
    })
    .set({ version: process.version, major, minor, patch }, 1);

  const gcSeconds = families.histogram({
    name: "nodejs_gc_duration_seconds",
    help: "Garbage collection duration by kind: major, minor, incremental or weakcb.",
    stability: "none",
    labels: ["kind"],
    buckets: GC_BUCKETS,
  });
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const kind = gcKind("detail" in entry ? entry.detail : undefined);
      if (kind !== undefined) gcSeconds.observe({ kind }, entry.duration / 1000);
    }
  });
  observer.observe({ entryTypes: ["gc"] });
}

/** Defines the `process_*` and `nodejs_*` families. The garbage collection observer lives as long as the process. */
export function defineRuntimeMetrics(families: MetricFamilies): void {
  defineProcess(families);
  defineNode(families);
}
