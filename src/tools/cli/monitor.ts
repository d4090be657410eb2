/** `kube-proxy monitor`: every sync of a running daemon as it happens, from its inspect socket. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { JournalLine, SyncRecord } from "../../agent/daemon/inspect-socket.ts";
import { causeWords, writtenWords } from "../../agent/daemon/sync-words.ts";
import { request } from "../../kernel/node-http.ts";
import { jsonIn } from "../../logging/attempt.ts";
import { escapeJson } from "../../logging/escape.ts";
import { safe } from "../explain/safe-text.ts";
import { refusalText } from "./bounded-input.ts";
import { DAEMON_OPTIONS, silentDaemonHint, socketOf } from "./inspect-socket-client.ts";
import { EXIT_SUCCESS, painted, UsageError } from "./output.ts";
import { command, commandLine, FORM_AND_HELP, numberOf, TEXT_OR_JSON } from "./subcommand-options.ts";

const MONITOR = commandLine("kube-proxy monitor", { forms: TEXT_OR_JSON }, [
  `Usage: kube-proxy monitor [options]

Prints every sync of a running daemon as it happens: which objects changed or what else was the cause, what was written,
and how many milliseconds each part took. Ends when the daemon ends. If its reader is too slow, a line says how many
syncs were missed; the daemon never waits.

`,
  {
    ...DAEMON_OPTIONS,
    "--last NUMBER": "the last so many syncs, as far as the daemon remembers them, and end",
    "--follow": "after --last, goes on with those that come",
    "--count NUMBER": "end after so many syncs",
    ...FORM_AND_HELP,
    "-o, --output FORM": "text, json: a line for each sync (default text)",
  },
  `
The parts: waiting (from the change to the sync), model (what it means for services and endpoints), rules (planned,
compared and written; of which the kernel or its tools), after (health-check ports, stale flows).

Examples:
  kube-proxy monitor --last 50 --follow
  kube-proxy monitor -o json --count 100 > syncs.jsonl

Exit status: 0 when the daemon has ended, or --last or --count is reached; 2 when no daemon answers.
`,
]);

const ANSWER_LIMIT_MS = 5_000;

/** Runs `monitor`. */
export const monitor = command(MONITOR, async ({ values, form }, output) => {
  const last = numberOf("--last", values.last ?? "0");
  let left = values.count === undefined ? Number.POSITIVE_INFINITY : numberOf("--count", values.count);
  const follows = values.last === undefined || values.follow;
  const response = await openJournal(socketOf(values), last, follows);
  // An idle daemon syncs seldom.
  if (output.terminal?.width !== undefined && follows)
    output.err(`Waiting for syncs${last === 0 ? " (--last 5 shows the last ones)" : ""}; Ctrl-C ends it.\n`);
  for await (const line of linesOf(response)) {
    const text =
      "missed" in line
        ? `… ${line.missed} ${line.missed === 1 ? "sync was" : "syncs were"} missed: this reader is too slow\n`
        : recordText(line);
    output.out(form === "json" ? `${escapeJson(JSON.stringify(line))}\n` : painted(safe(text), output.terminal));
    if (!("missed" in line)) left -= 1;
    if (left <= 0) return EXIT_SUCCESS;
  }
  if (follows) output.err("The daemon has ended.\n");
  return EXIT_SUCCESS;
});

/** Yields lines until the connection ends, for any reason. Drops an incomplete last line. */
async function* linesOf(response: IncomingMessage): AsyncGenerator<JournalLine> {
  response.setEncoding("utf8");
  let rest = "";
  try {
    for await (const text of response) {
      const texts = `${rest}${text}`.split("\n");
      rest = texts.pop() ?? "";
      for (const one of texts) {
        const line = jsonIn(one);
        if (isLine(line)) yield line;
      }
    }
  } catch (error) {
    // A killed daemon ends the connection, too.
    if (!(error instanceof Error && "code" in error)) throw error;
  } finally {
    response.destroy();
  }
}

/** A daemon of another version may send lines that cannot be shown. */
function isLine(line: unknown): line is JournalLine {
  if (typeof line !== "object" || line === null) return false;
  const { missed, causes, stages, failures } = line as Partial<SyncRecord> & { missed?: unknown };
  return typeof missed === "number" || (Array.isArray(causes) && typeof stages === "object" && Array.isArray(failures));
}

/** @throws UsageError if no daemon answers, or one without a journal. */
export async function openJournal(socket: string, last: number, follows: boolean): Promise<IncomingMessage> {
  const asked = request({ socketPath: socket, path: `/journal?last=${last}&follow=${follows}` });
  const limit = AbortSignal.timeout(ANSWER_LIMIT_MS);
  asked.on("error", () => {});
  try {
    asked.end();
    const [response] = (await once(asked, "response", { signal: limit })) as [IncomingMessage];
    if (response.statusCode === 200) return response;
    response.destroy();
  } catch (error) {
    asked.destroy();
    const reason = limit.aborted ? `nothing within ${ANSWER_LIMIT_MS / 1_000} s` : refusalText(error);
    throw new UsageError(`no answer at ${socket}: ${reason}`, silentDaemonHint(socket));
  }
  throw new UsageError(`the daemon at ${socket} has no journal: is it of another version?`);
}

/** One record: a line for each cause, and one that says what was written and how long that took. */
function recordText(record: SyncRecord): string {
  const { family, endedMs, isFullSync, causes, furtherCauses, result, failures, furtherFailures } = record;
  const time = new Date(endedMs).toISOString().slice(11, 23);
  const lines = causes.map((cause, index) => {
    const { before, object, after } = causeWords(cause);
    return `${index === 0 ? `${time} ${family}` : " ".repeat(17)} ${before}${object}${after}`;
  });
  if (furtherCauses > 0) lines.push(`${" ".repeat(17)} and ${furtherCauses} more`);
  const what = `${isFullSync ? "full sync, " : ""}${writtenWords(record)}`;
  lines.push(`    ${result === "done" ? "" : `${result.toUpperCase()}: `}${what}; ${stagesText(record)}`);
  for (const { subject, reason } of failures) lines.push(`    refused: ${subject}: ${reason}`);
  if (furtherFailures > 0) lines.push(`    and ${furtherFailures} more refused`);
  return `${lines.join("\n")}\n`;
}

function stagesText({ stages: { waiting, model, rules, kernel, after } }: SyncRecord): string {
  const inKernel = kernel === null ? "" : ` (kernel ${ms(kernel)})`;
  const total = ms(waiting + model + rules + after);
  return `${total} ms: waited ${ms(waiting)}, model ${ms(model)}, rules ${ms(rules)}${inKernel}, after ${ms(after)}`;
}

/** As people say them: `0.04`, `1.2`, `102`. */
function ms(value: number): string {
  return String(Number(value.toFixed(value >= 10 ? 0 : value >= 1 ? 1 : 2)));
}
