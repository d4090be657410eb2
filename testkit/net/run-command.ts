/** Runs the `ip` tool (and others) for the topology: argument array in, text out. No shell. */
import { spawn } from "node:child_process";
import { ignorePipeErrors, signalChild } from "../../src/kernel/child-process.ts";
import { whenLate } from "../support/patience.ts";

/** A command's output. */
export interface CommandResult {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command failed to start, or ended with a non-zero status. */
export class CommandError extends Error {
  override readonly name = "CommandError";
  readonly command: string;
  readonly status: number;
  readonly stderr: string;
  constructor(command: string, status: number, stderr: string, options?: ErrorOptions) {
    super(`${command}: exit status ${status}: ${stderr.trim() === "" ? "no output" : stderr.trim()}`, options);
    this.command = command;
    this.status = status;
    this.stderr = stderr;
  }
}

export interface CommandOptions {
  /** Text for standard input. @default "" */
  readonly input?: string;
  /** Kill the command after this many milliseconds, later on a busy machine. @default 20000 */
  readonly timeoutMs?: number;
  /** Resolve with any exit status instead of rejecting. @default false */
  readonly allowFailure?: boolean;
  /** Where it runs. @default the working directory */
  readonly cwd?: string;
}

/** Runs a command to its end. Rejects with {@link CommandError} on a missing tool, a time-out or a non-zero status. */
export function runCommand(argv: readonly [string, ...string[]], options: CommandOptions = {}): Promise<CommandResult> {
  const { input = "", timeoutMs = 20_000, allowFailure = false, cwd = "." } = options;
  const [file, ...args] = argv;
  const command = argv.join(" ");
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { cwd, stdio: ["pipe", "pipe", "pipe"] });
    // A command that ends without reading its input closes the pipe; its exit status says more than EPIPE.
    ignorePipeErrors(child);
    child.on("error", (cause) => reject(new CommandError(command, -1, cause.message, { cause })));
    if (child.pid === undefined) return;
    const inTime = whenLate(timeoutMs, () => signalChild(child, "SIGKILL"));
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.on("exit", inTime);
    child.on("close", (code) => {
      const status = code ?? -1;
      if (status === 0 || (allowFailure && code !== null)) resolve({ status, stdout, stderr });
      else reject(new CommandError(command, status, code === null ? `killed; ${stderr}` : stderr));
    });
    child.stdin.end(input);
  });
}
