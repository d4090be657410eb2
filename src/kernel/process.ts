/**
 * Runs the host's tools: an argument array, data on standard input, both outputs collected. Never a shell.
 * Knows no tool in particular.
 */
import type { ChildProcess } from "node:child_process";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import { ignorePipeErrors, signalChild } from "./child-process.ts";

export interface ExecOptions {
  /** Text chunks for standard input, written in order. Without it the tool reads end of file at once. */
  readonly stdin?: Iterable<string>;
  /** Kills the tool; the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Kills the tool after this long. @default no limit */
  readonly timeoutMs?: number;
  /** Added to this process's environment, and overrides it. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface ExecResult {
  /** Exit status, or -1 when a signal ended the tool; `stderr` then ends with a line that says so. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one tool to its end. Rejects if it cannot start ({@link ExecError}), on abort, or with what `stdin` throws. */
export type Exec = (file: string, args: readonly string[], options?: ExecOptions) => Promise<ExecResult>;

/** A tool could not be started. */
export class ExecError extends Error {
  override readonly name = "ExecError";
  /** `missing_tool`: no such program in the PATH. */
  readonly code: "missing_tool" | "not_started";
  constructor(code: "missing_tool" | "not_started", message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Directories of system tools that a service manager or container may leave out of PATH. */
const SYSTEM_DIRECTORIES = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/** A PATH with the missing directories of system tools appended. */
export function withSystemDirectories(path: string | undefined): string {
  const given = path === undefined || path === "" ? ["/usr/local/bin", "/usr/bin", "/bin"] : path.split(":");
  return [...given, ...SYSTEM_DIRECTORIES.filter((directory) => !given.includes(directory))].join(":");
}

/** Debian packages of the tools that the program may start. */
const PACKAGES: readonly (readonly [prefix: string, name: string])[] = [
  ["iptables", "iptables"],
  ["ip6tables", "iptables"],
  ["nft", "nftables"],
  ["ipset", "ipset"],
  ["conntrack", "conntrack"],
  ["nfacct", "nfacct"],
  ["ip", "iproute2"],
  ["modprobe", "kmod"],
];

function missingToolMessage(file: string): string {
  const name = file.slice(file.lastIndexOf("/") + 1);
  const found = PACKAGES.find(([prefix]) => name === prefix || name.startsWith(`${prefix}-`));
  const advice = found === undefined ? "" : `; install it, on Debian and Ubuntu with the package "${found[1]}"`;
  return `${file}: no such program in the PATH${advice}`;
}

/** {@link Exec} with this machine's tools. */
export const execProcess: Exec = async (file, args, options = {}) => {
  options.signal?.throwIfAborted();
  const env: NodeJS.ProcessEnv = { ...process.env, ...options.env };
  // On Windows, PATH has another syntax, and perhaps another spelling.
  if (process.platform !== "win32") env.PATH = withSystemDirectories(env.PATH);
  const child = start(file, args, env);
  ignorePipeErrors(child);
  const stdout = collect(child, "stdout");
  const stderr = collect(child, "stderr");
  const ended = new Promise<readonly [number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once("error", (error) => reject(startError(file, error)));
    child.once("close", (status, signal) => resolve([status, signal]));
  });
  // It did not start: its error event is on the way, and there is nothing to feed or kill.
  if (child.pid === undefined) await ended;
  let timedOut = false;
  const kill = (): void => {
    signalChild(child, "SIGKILL");
    // A process that the tool has started may still hold the other ends.
    child.stdout?.destroy();
    child.stderr?.destroy();
  };
  const timer =
    options.timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          timedOut = true;
          kill();
        }, options.timeoutMs);
  options.signal?.addEventListener("abort", kill, { once: true });
  try {
    const fed = feed(child.stdin, options.stdin ?? [], kill);
    const [status, signal] = await ended;
    const failure = await fed;
    options.signal?.throwIfAborted();
    if (failure !== undefined) throw failure.error;
    const note = signal === null ? "" : timedOut ? `killed after ${options.timeoutMs} ms` : `killed by ${signal}`;
    const text = stderr();
    return {
      status: signal === null ? (status ?? -1) : -1,
      stdout: stdout(),
      stderr: note === "" ? text : text === "" || text.endsWith("\n") ? `${text}${note}\n` : `${text}\n${note}\n`,
    };
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", kill);
  }
};

/** Most start errors come as an event of the child; a few, such as a lack of memory, are thrown. */
function start(file: string, args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
  try {
    // Loaded lazily: most nodes never start a tool.
    const { spawn } = process.getBuiltinModule("node:child_process");
    return spawn(file, args, { env, stdio: "pipe", windowsHide: true });
  } catch (error) {
    throw startError(file, error instanceof Error ? error : new Error(String(error)));
  }
}

function startError(file: string, error: Error): ExecError {
  const isMissing = "code" in error && error.code === "ENOENT";
  return isMissing
    ? new ExecError("missing_tool", missingToolMessage(file), { cause: error })
    : new ExecError("not_started", `${file}: could not be started: ${error.message}`, { cause: error });
}

/** Collects raw pieces and decodes them once: cheap even for the tens of megabytes of a large `iptables-save`. */
function collect(child: ChildProcess, name: "stdout" | "stderr"): () => string {
  const pieces: Buffer[] = [];
  child[name]?.on("data", (piece: Buffer) => void pieces.push(piece));
  return () => Buffer.concat(pieces).toString("utf8");
}

/** Small chunks are joined to about this many characters before they are written. */
const WRITE_SIZE = 64 * 1024;

/**
 * Writes the chunks and yields to the event loop after each write. If the tool stops reading, its exit status tells why.
 *
 * @returns what the iterable threw. The tool is killed before it sees end of file, so that it does not take a broken payload for a
 * complete one.
 */
async function feed(
  pipe: Writable | null,
  chunks: Iterable<string>,
  kill: () => void,
): Promise<{ readonly error: unknown } | undefined> {
  let failure: { readonly error: unknown } | undefined;
  async function* inTurns(): AsyncGenerator<string> {
    try {
      for (const text of batches(chunks)) {
        yield text;
        await nextTurn();
      }
    } catch (error) {
      failure = { error };
      kill();
    }
  }
  if (pipe !== null) await pipeline(inTurns(), pipe).catch(() => {});
  return failure;
}

function* batches(chunks: Iterable<string>): Iterable<string> {
  let batch = "";
  for (const chunk of chunks) {
    batch += chunk;
    if (batch.length < WRITE_SIZE) continue;
    yield batch;
    batch = "";
  }
  if (batch !== "") yield batch;
}
