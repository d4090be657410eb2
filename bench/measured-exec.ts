/**
 * Runs the host's tools as the program does, and takes the time of it: how long each process lived, how much it was given
 * and what this process itself worked meanwhile. Can also pretend to run them, to see only our own work.
 */
import { type Exec, type ExecResult, execProcess } from "../src/kernel/process.ts";
import { ownCpuMs, toolsCpuMs } from "./memory.ts";

/** One tool, from start to end. Times are those of `performance.now()`. */
export interface ToolRun {
  readonly isRestore: boolean;
  readonly startMs: number;
  readonly endMs: number;
  /** Characters given on standard input; the payloads here are ASCII. */
  readonly bytes: number;
  /** Processor time of our main thread while the tool ran: starting it and writing to its standard input. */
  readonly ownCpuMs: number;
  /** Processor time of the tool. */
  readonly toolCpuMs: number;
}

/** A step took longer than it may; its tool has been killed. */
export class StepLimitError extends Error {
  override readonly name = "StepLimitError";
}

export interface MeasuredExecOptions {
  /** Told every chunk of every payload. */
  readonly onText?: (text: string) => void;
}

export class MeasuredExec {
  readonly #options: MeasuredExecOptions;
  #runs: ToolRun[] = [];
  #deadlineMs = Number.POSITIVE_INFINITY;
  /** Whether tools are only pretended to run: every command succeeds at once and every dump is empty. */
  isPretending = false;

  constructor(options: MeasuredExecOptions = {}) {
    this.#options = options;
  }

  /** From now on, for this long, tools may run. */
  limit(ms: number): void {
    this.#deadlineMs = performance.now() + ms;
  }

  /** The runs since the last call. */
  takeRuns(): readonly ToolRun[] {
    const runs = this.#runs;
    this.#runs = [];
    return runs;
  }

  /** Takes the time of something that does without a tool; when tools are only pretended, of nothing. */
  async instead<T>(work: () => Promise<readonly T[]>): Promise<readonly T[]> {
    if (this.isPretending) return [];
    const startMs = performance.now();
    const result = await work();
    this.#runs.push({ isRestore: false, startMs, endMs: performance.now(), bytes: 0, ownCpuMs: 0, toolCpuMs: 0 });
    return result;
  }

  readonly exec: Exec = async (file, args, options = {}) => {
    const leftMs = this.#deadlineMs - performance.now();
    if (leftMs <= 0) throw new StepLimitError(`${file}: no time left`);
    let bytes = 0;
    const { onText } = this.#options;
    function* counted(chunks: Iterable<string>): Iterable<string> {
      for (const chunk of chunks) {
        bytes += chunk.length;
        onText?.(chunk);
        yield chunk;
      }
    }
    const stdin = options.stdin === undefined ? undefined : counted(options.stdin);
    const isRestore = args.includes("--noflush");
    const startMs = performance.now();
    // Asking costs as much as planning a change.
    const isTimed = !this.isPretending;
    const ownStartMs = isTimed ? ownCpuMs() : 0;
    const toolsStartMs = isTimed ? toolsCpuMs() : 0;
    // What a tool can do is asked of the real one always.
    const result =
      this.isPretending && !args.includes("--version")
        ? pretend(stdin)
        : await execProcess(file, args, {
            ...options,
            ...(stdin !== undefined && { stdin }),
            ...(Number.isFinite(leftMs) && { timeoutMs: Math.ceil(leftMs) }),
          });
    const endMs = performance.now();
    this.#runs.push({
      isRestore,
      startMs,
      endMs,
      bytes,
      ownCpuMs: isTimed ? ownCpuMs() - ownStartMs : 0,
      toolCpuMs: isTimed ? toolsCpuMs() - toolsStartMs : 0,
    });
    if (result.status === -1 && endMs >= this.#deadlineMs) throw new StepLimitError(`${file}: killed, out of time`);
    return result;
  };
}

function pretend(stdin: Iterable<string> | undefined): ExecResult {
  for (const _ of stdin ?? []);
  return { status: 0, stdout: "", stderr: "" };
}
