/** `kube-proxy status`: the state of a running daemon at a glance, from its inspect socket. */
import type { StatusReport } from "../daemon/inspect-report.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { askDaemon, DAEMON_OPTIONS, socketOf } from "./inspect-socket-client.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, type Output, painted, UsageError } from "./output.ts";
import { commandLine, FORM_AND_HELP, runCommand, TEXT_OR_JSON } from "./subcommand-options.ts";

export const STATUS = commandLine("kube-proxy status", { forms: TEXT_OR_JSON }, [
  `Usage: kube-proxy status [options]

State of a running daemon at a glance: mode, health, syncs, what was refused, and what this node cannot do and why. Needs the
daemon's user.

`,
  { ...DAEMON_OPTIONS, ...FORM_AND_HELP },
  `
Examples:
  kube-proxy status
  kube-proxy status -o json

Exit status: 0 when the daemon is healthy and nothing was refused, 1 otherwise, 2 when it does not answer.
`,
]);

/** Runs `status`. @returns the exit status. */
export async function status(argv: readonly string[], output: Output): Promise<number> {
  return await runCommand(STATUS, argv, output, async ({ values, form }) => {
    // A daemon of another version may lack fields, which print as "?".
    const report = await askDaemon(socketOf(values), "/status", () => {
      output.err("The daemon has not answered for 5 s: it hangs, or the node is too busy for it. Waiting 10 s more.\n");
    });
    if (!isReport(report)) throw new UsageError("the daemon did not answer with its state: it is of another version");
    output.out(form === "json" ? jsonText(report) : painted(safe(statusText(report)), output.terminal));
    return report.isHealthy === true && (report.failures ?? []).length === 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  });
}

function isReport(report: unknown): report is Partial<StatusReport> {
  if (typeof report !== "object" || report === null || !("mode" in report)) return false;
  const { failures = [], families = [], limits = [] } = report as Partial<StatusReport>;
  return [failures, families, limits].every((list) => Array.isArray(list));
}

/** `?` for a field that another version does not have. */
function known(value: unknown): string {
  return value === undefined || value === null ? "?" : String(value);
}

function statusText(report: Partial<StatusReport>): string {
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
    const age =
      typeof one.lastSyncAgeMs !== "number"
        ? "not synced yet"
        : `last sync ${(one.lastSyncAgeMs / 1_000).toFixed(1)} s ago`;
    const doing = one.isSyncing ? ", syncing" : one.isFailing ? ", the last sync failed" : "";
    lines.push(
      `${one.family}: ${numbered(one.servicePorts, "service port")}, ${numbered(one.endpoints, "endpoint")}, ${age}${doing}`,
    );
    for (const remark of one.remarks ?? []) lines.push(`  ${remark}`);
  }
  lines.push(...trackingLines(connectionTracking));
  if (typeof report.silentMs === "number") {
    const silence = durationText(report.silentMs / 1_000);
    lines.push(`API server: last heard about the quietest resource ${silence} ago (up to 10 min is usual)`);
  }
  for (const { subject, reason } of failures)
    lines.push(`${/^(?:start|watch of )/.test(subject) ? "fails" : "refused"}: ${subject}: ${reason}`);
  for (const { what, why } of limits) lines.push(`not possible: ${what}: ${why}`);
  return lines.map((line) => `${line}\n`).join("");
}

function trackingLines(tracking: StatusReport["connectionTracking"]): readonly string[] {
  if (tracking === undefined) return [];
  const { entries, max, invalid = 0, notes = [] } = tracking;
  const of = max === 0 ? "" : ` of ${max}`;
  const lost = invalid === 0 ? "" : `, ${invalid} packets belonged to no connection (INVALID)`;
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

function durationText(seconds: number): string {
  const units = [
    ["d", 86_400],
    ["h", 3_600],
    ["min", 60],
    ["s", 1],
  ] as const;
  const [unit, size] = units.find(([, size]) => seconds >= 2 * size) ?? ["s", 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
