/**
 * The texts and exit statuses of the iptables tools: reference iptables-operation.md §10.2, and the messages of
 * iptables 1.8.9 with both back ends. Pure.
 */
import type { ExecResult } from "../process.ts";
import { IptablesError, type IptablesErrorCode, IptablesRestoreError } from "./iptables.ts";

/** Exit status for "resource problem": the xtables lock, or a refused nf_tables transaction. */
const STATUS_RESOURCE = 4;

const NOT_FOUND =
  /No chain\/target\/match by that name|No such file or directory|does a matching rule exist|does not exist|chain `[^']*' in table `[^']*' is incompatible/;

// An nf_tables transaction that the kernel refused also ends with status 4:
// "line 3: RULE_APPEND failed (No such file or directory): rule in chain KUBE-A".
const REFUSED_TRANSACTION = /\b[A-Z]+_[A-Z_]+ failed \(/;

/** Signals from outside; a crash (SIGSEGV, SIGABRT) may be a rule's fault. The line is that of {@link ExecResult}. */
const KILLED = /^killed by SIG(?:KILL|TERM|INT|HUP)$/m;

/** Sorts a failed command. `lock_held` is certain to pass; the others are not. */
export function errorCodeOf(status: number, output: string): IptablesErrorCode {
  if (status === -1 && KILLED.test(output)) return "killed";
  if (status === STATUS_RESOURCE && !REFUSED_TRANSACTION.test(output)) return "lock_held";
  return NOT_FOUND.test(output) ? "not_found" : "failed";
}

/** The error of a rule or save command that ended with a status other than 0. */
export function commandError(command: string, { status, stderr }: ExecResult): IptablesError {
  const output = stderr.trim();
  return new IptablesError(errorCodeOf(status, output), command, status, output);
}

const LINE_PATTERNS = [
  // Both back ends, a line that cannot be parsed; also the end of a table for what nf_tables checks only there.
  /^Error occurred at line: (\d+)/m,
  // legacy: the line, or COMMIT when the kernel refuses the table; nf_tables adds the reason.
  /: line (\d+) failed/,
  // nf_tables: one such line per refused operation, the first in the payload first.
  /^line (\d+): [A-Z]+_[A-Z_]+ failed/m,
];

/**
 * The line of the payload that a restore command complains about.
 * @param commitLines 1-based lines that end a table: when the tool names one, it knows no better.
 */
export function failedLineOf(output: string, commitLines: readonly number[]): number | undefined {
  for (const pattern of LINE_PATTERNS) {
    const text = pattern.exec(output)?.[1];
    if (text === undefined) continue;
    const line = Number(text);
    return commitLines.includes(line) ? undefined : line;
  }
  return undefined;
}

/** The error of a restore command that ended with a status other than 0. */
export function restoreError(command: string, { status, stderr }: ExecResult, commitLines: readonly number[]) {
  const output = stderr.trim();
  const code = errorCodeOf(status, output);
  // "Not found" is about a rule of the payload here, not about what the caller asked for.
  return new IptablesRestoreError(
    code === "not_found" ? "failed" : code,
    command,
    status,
    output,
    failedLineOf(output, commitLines),
  );
}

/** Passes chunks through and notes the 1-based numbers of their `COMMIT` lines. A chunk ends at a line end. */
export function* watchCommits(chunks: Iterable<string>, commitLines: number[]): Generator<string> {
  let seen = 0;
  for (const chunk of chunks) {
    for (let start = 0; start < chunk.length; ) {
      seen += 1;
      const newline = chunk.indexOf("\n", start);
      const end = newline < 0 ? chunk.length : newline;
      if (end - start === COMMIT.length && chunk.startsWith(COMMIT, start)) commitLines.push(seen);
      start = end + 1;
    }
    yield chunk;
  }
}

const COMMIT = "COMMIT";

/** Which part of the kernel the tool speaks to. */
export type IptablesBackEnd = "legacy" | "nft";

/**
 * The oldest iptables that is used: its restore command takes the xtables lock itself, and it knows `--random-fully`. Every
 * system that runs this program's Node.js has 1.8.
 */
const OLDEST = [1, 6, 2] as const;

/** The version in the output, as it is written: `1.8.9`; undefined when there is none. */
export function versionIn(output: string): string | undefined {
  return /v([0-9]+(?:\.[0-9]+)+)/.exec(output)?.[1];
}

/** Why a version cannot be used, and what to do; undefined when it can. */
export function versionProblem(command: string, version: string): string | undefined {
  if (!isOlder(version, OLDEST)) return undefined;
  return `${command} ${version} is too old: install iptables ${OLDEST.join(".")} or newer`;
}

/** From this version on what the save command prints names the back end. */
const SAVE_NAMES_BACK_END = [1, 8, 8] as const;

/** Whether what the save command of a version prints leaves open which back end it has. */
export function isSilentOnBackEnd(version: string | undefined): boolean {
  return version !== undefined && isOlder(version, SAVE_NAMES_BACK_END);
}

function isOlder(version: string, than: readonly number[]): boolean {
  const parts = version.split(".").map(Number);
  const index = than.findIndex((wanted, at) => (parts[at] ?? 0) !== wanted);
  return index >= 0 && (parts[index] ?? 0) < (than[index] ?? 0);
}

/** The back end that the output names; versions before 1.8 have only one and name none. */
export function backEndIn(output: string): IptablesBackEnd {
  return output.includes("(nf_tables)") ? "nft" : "legacy";
}
