/** The state of a daemon in words. */
import type { StatusReport } from "./inspect-report.ts";

/** `?` for a field that another version does not have. */
function known(value: unknown): string {
  return value === undefined || value === null ? "?" : String(value);
}

/** The state of a daemon in lines, for `kube-proxy status` and the page. Not yet escaped for a terminal or a page. */
export function statusLines(report: Partial<StatusReport>): readonly string[] {
  const { program, mode, node, isHealthy, failures = [], families = [], limits = [] } = report;
  const { connectionTracking } = report;
  const lines = [`${program ?? "a daemon"}, ${mode ?? "not known"} mode, on ${node ?? "not known"}`];
  lines.push(isHealthy === true ? "healthy" : "NOT healthy: it does not keep up");
  if (report.isModeSet === false)
    lines.push(
      "no mode is set, and Kubernetes plans nftables as the default from v1.40 on: set mode to the one you want",
    );
  const { process: own, syncs } = report;
  if (own !== undefined) {
    const memory = `${(own.residentBytes / 1e6).toFixed(0)} MB`;
    const times = syncs == null ? "" : `; ${syncTimes(syncs)}`;
    lines.push(`up for ${durationText(own.uptimeSeconds)}, ${memory} of memory${times}`);
  }
  for (const one of families) {
    const age = typeof one.lastSyncAgeMs !== "number" ? "not synced yet" : `last sync ${agoText(one.lastSyncAgeMs)}`;
    const doing = one.isSyncing ? ", syncing" : one.isFailing ? ", the last sync failed" : "";
    lines.push(
      `${one.family}: ${numbered(one.servicePorts, "service port")}, ${numbered(one.endpoints, "endpoint")}, ${age}${doing}`,
    );
    for (const remark of one.remarks ?? []) lines.push(`  ${remark}`);
    for (const { endpoint, servicePort, why } of one.leftOut ?? [])
      lines.push(`  ${endpoint} of ${servicePort} is left out ${why}`);
  }
  lines.push(...trackingLines(connectionTracking));
  if (typeof report.silentMs === "number") {
    const silence = durationText(report.silentMs / 1_000);
    lines.push(`API server: last heard about the quietest resource ${silence} ago (up to 10 min is usual)`);
  }
  for (const { subject, reason } of failures)
    lines.push(`${/^(?:start|watch of )/.test(subject) ? "fails" : "refused"}: ${subject}: ${reason}`);
  for (const { what, why } of limits) lines.push(`not possible: ${what}: ${why}`);
  return lines;
}

function trackingLines(tracking: StatusReport["connectionTracking"]): readonly string[] {
  if (tracking === undefined) return [];
  const { entries, max, invalid = 0, notes = [] } = tracking;
  const of = max === 0 ? "" : ` of ${max}`;
  const lost = invalid === 0 ? "" : `, ${numbered(invalid, "packet")} belonged to no connection (INVALID)`;
  return [`connection tracking: ${entries}${of} entries${lost}`, ...notes.map((note) => `  ${note}`)];
}

/** `?` for a number that another version does not have. */
function numbered(number: unknown, what: string): string {
  return `${known(number)} ${what}${number === 1 ? "" : "s"}`;
}

/** As people say them: `3 syncs: median 65 ms, slowest 358 ms`. The 99th percentile of fewer than 100 syncs is the slowest. */
function syncTimes({ count, p50Ms, p99Ms }: NonNullable<StatusReport["syncs"]>): string {
  if (count === 1) return `1 sync: ${millisecondsText(p50Ms)}`;
  return `${count} syncs: median ${millisecondsText(p50Ms)}, ${count < 100 ? "slowest" : "99 % within"} ${millisecondsText(p99Ms)}`;
}

function millisecondsText(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
}

/** `4.2 s ago`, `12 min ago` */
export function agoText(ms: number): string {
  return `${ms < 120_000 ? `${(ms / 1_000).toFixed(1)} s` : durationText(ms / 1_000)} ago`;
}

/** `4 s`, `12 min`, `3 h`, `2 d`: in the largest unit of which there are two. */
export function durationText(seconds: number): string {
  const units = [
    ["d", 86_400],
    ["h", 3_600],
    ["min", 60],
    ["s", 1],
  ] as const;
  const [unit, size] = units.find(([, size]) => seconds >= 2 * size) ?? ["s", 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
