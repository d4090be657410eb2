/**
 * Small files, read and parsed on the program's own thread: one of their own costs 100 ms of processor time and more, most manifests a
 * few (docs/performance.md). Only from file systems of this machine, where a read does not hang; no more than so much at a time; and
 * nothing may take long: what does is ended and left to the thread, and so is all that comes after it.
 */
import { performance } from "node:perf_hooks";
import { Script } from "node:vm";
import { parseJson } from "../parse-json.ts";
import { readAndParse } from "./read-and-parse.ts";
import type { FileReading, ReadLimits, ThreadRequest } from "./reading.ts";
import { readRegularFile } from "./regular-file.ts";

/** For one file, by the clock: ten times of what it takes, for the processors may be busy. It is taken once at most. */
const LONGEST_MS = 500;
/** Files by the hundred are better parsed elsewhere. */
const MOST_BYTES = 512 * 2 ** 10;
const PER_MS = 10_000;

/** Where a script finds what it is to run. */
const WORK = Symbol.for("kube-proxy-ts.limited-work");
let limitedCall: Script | undefined;

export class QuickReads {
  readonly #limits: ReadLimits;
  readonly #longestMs: number;
  #isOver = false;
  #bytes = 0;
  #sinceMs = Number.NEGATIVE_INFINITY;

  constructor(limits: ReadLimits, longestMs = LONGEST_MS) {
    this.#limits = limits;
    this.#longestMs = longestMs;
  }

  /** Reads a file that {@link ReadRequest.isQuick}. @returns undefined when the thread is to do it. */
  async read(request: ThreadRequest): Promise<FileReading | undefined> {
    if (this.#isOver || this.#isUsedUp()) return undefined;
    const parse = request.file.endsWith(".json") ? parseJson : (await import("../parse-manifest.ts")).parseManifest;
    const readFile: typeof readRegularFile = (...words) => {
      const bytes = readRegularFile(...words);
      this.#bytes += bytes?.length ?? 0;
      return bytes;
    };
    const reading = withinMs(this.#longestMs, () => readAndParse(request, { limits: this.#limits, readFile, parse }));
    this.#isOver = reading === undefined;
    return reading;
  }

  #isUsedUp(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#sinceMs > PER_MS) {
      this.#sinceMs = nowMs;
      this.#bytes = 0;
    }
    return this.#bytes >= MOST_BYTES;
  }
}

/** What the work returns; undefined when it took longer, and was ended in the middle of it. Only a script can be ended. */
function withinMs<T>(timeout: number, work: () => T): T | undefined {
  let result: T | undefined;
  const run = (): void => {
    result = work();
  };
  limitedCall ??= new Script(`globalThis[Symbol.for("${WORK.description}")]()`);
  Reflect.defineProperty(globalThis, WORK, { value: run, configurable: true });
  try {
    limitedCall.runInThisContext({ timeout });
    return result;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT") return undefined;
    throw error;
  } finally {
    Reflect.deleteProperty(globalThis, WORK);
  }
}
