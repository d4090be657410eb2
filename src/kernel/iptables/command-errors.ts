/**
 * Messages and exit statuses of the iptables tools: reference iptables-operation.md §10.2, and the messages of iptables
 * 1.8.9 with both back ends.
 */
import type { ExecResult } from "../process.ts";
import { IptablesError, type IptablesErrorCode, IptablesRestoreError } from "./iptables.ts";

/** Exit status for "resource problem": the xtables lock is held, or the kernel rejected an nf_tables transaction. */
const STATUS_RESOURCE = 4;

const NOT_FOUND =
  /No chain\/target\/match by that name|No such file or directory|does a matching rule exist|does not exist|chain `[^']*' in table `[^']*' is incompatible/;

// When the kernel rejects an nf_tables transaction, the tool also exits with status 4: "line 3: RULE_APPEND failed (No
// such file or directory): rule in chain KUBE-A".
const REFUSED_TRANSACTION = /\b[A-Z]+_[A-Z_]+ failed \(/;

/** Signals sent from outside. A rule may cause a crash (SIGSEGV, SIGABRT). {@link ExecResult} describes the line. */
const KILLED = /^killed by SIG(?:KILL|TERM|INT|HUP)$/m;

/** Classifies a failed command. Only `lock_held` is sure to be temporary. */
export function errorCodeOf(status: number, output: string): IptablesErrorCode {
  if (status === -1 && KILLED.test(output)) return "killed";
  if (status === STATUS_RESOURCE && !REFUSED_TRANSACTION.test(output)) return "lock_held";
  return NOT_FOUND.test(output) ? "not_found" : "failed";
}

/** The error for a rule or save command that exited with a nonzero status. */
export function commandError(command: string, { status, stderr }: ExecResult): IptablesError {
  const output = stderr.trim();
  return new IptablesError(errorCodeOf(status, output), command, status, output);
}

const LINE_PATTERNS = [
  // Both back ends, for a line that cannot be parsed; also names the COMMIT line for what nf_tables checks only there.
  /^Error occurred at line: (\d+)/m,
  // legacy: the line, or COMMIT if the kernel rejects the table; nf_tables adds the reason.
  /: line (\d+) failed/,
  // nf_tables: one such line per rejected operation, in payload order.
  /^line (\d+): [A-Z]+_[A-Z_]+ failed/m,
];

/**
 * The line of the payload that a restore command reports.
 * @param commitLines 1-based numbers of `COMMIT` lines: a tool that names one does not know the line at fault.
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

/** The error for a restore command that exited with a nonzero status. */
export function restoreError(command: string, { status, stderr }: ExecResult, commitLines: readonly number[]) {
  const output = stderr.trim();
  const code = errorCodeOf(status, output);
  // Here "not found" refers to a rule of the payload, not to what the caller asked for.
  return new IptablesRestoreError(
    code === "not_found" ? "failed" : code,
    command,
    status,
    output,
    failedLineOf(output, commitLines),
  );
}

/** Passes chunks through and records the 1-based numbers of their `COMMIT` lines. Chunks must end with a newline. */
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

/** Which kernel subsystem the tool programs. */
export type IptablesBackEnd = "legacy" | "nft";

/**
 * The oldest supported iptables: its restore command takes the xtables lock itself and supports `--random-fully`. Every
 * system that can run this program's Node.js has 1.8.
 */
const OLDEST = [1, 6, 2] as const;

/** The version in the output, verbatim, such as `1.8.9`; undefined if there is none. */
export function versionIn(output: string): string | undefined {
  return /v([0-9]+(?:\.[0-9]+)+)/.exec(output)?.[1];
}

/** Why a version cannot be used, and what to do about it; undefined if it can. */
export function versionProblem(command: string, version: string): string | undefined {
  if (!isOlder(version, OLDEST)) return undefined;
  return `${command} ${version} is too old: install iptables ${OLDEST.join(".")} or newer`;
}

/** The save command prints the back end from this version on. */
const SAVE_NAMES_BACK_END = [1, 8, 8] as const;

/** Whether the output of this version's save command does not name the back end. */
export function isSilentOnBackEnd(version: string | undefined): boolean {
  return version !== undefined && isOlder(version, SAVE_NAMES_BACK_END);
}

function isOlder(version: string, than: readonly number[]): boolean {
  const parts = version.split(".").map(Number);
  const index = than.findIndex((wanted, at) => (parts[at] ?? 0) !== wanted);
  return index >= 0 && (parts[index] ?? 0) < (than[index] ?? 0);
}

/** The back end named in the output; versions before 1.8 have only one and name none. */
export function backEndIn(output: string): IptablesBackEnd {
  return output.includes("(nf_tables)") ? "nft" : "legacy";
}
