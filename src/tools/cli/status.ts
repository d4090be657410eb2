/** `kube-proxy status`: the state of a running daemon at a glance, from its inspect socket. */
import type { StatusReport } from "../../agent/daemon/inspect-report.ts";
import { statusLines } from "../../agent/daemon/status-words.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { askDaemon, DAEMON_OPTIONS, socketOf } from "./inspect-socket-client.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, painted, UsageError } from "./output.ts";
import { command, commandLine, FORM_AND_HELP, TEXT_OR_JSON } from "./subcommand-options.ts";

const STATUS = commandLine("kube-proxy status", { forms: TEXT_OR_JSON }, [
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

/** Runs `status`. */
export const status = command(STATUS, async ({ values, form }, output) => {
  // A daemon of another version may lack fields, which print as "?".
  const report = await askDaemon(socketOf(values), "/status", () => {
    output.err("The daemon has not answered for 5 s: it hangs, or the node is too busy for it. Waiting 10 s more.\n");
  });
  if (!isReport(report)) throw new UsageError("the daemon did not answer with its state: it is of another version");
  const text = statusLines(report)
    .map((line) => `${line}\n`)
    .join("");
  output.out(form === "json" ? jsonText(report) : painted(safe(text), output.terminal));
  return report.isHealthy === true && (report.failures ?? []).length === 0 ? EXIT_SUCCESS : EXIT_FAILURE;
});

function isReport(report: unknown): report is Partial<StatusReport> {
  if (typeof report !== "object" || report === null || !("mode" in report)) return false;
  const { failures = [], families = [], limits = [] } = report as Partial<StatusReport>;
  return [failures, families, limits].every((list) => Array.isArray(list));
}
