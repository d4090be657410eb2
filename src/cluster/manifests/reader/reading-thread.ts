/** One thread at work, from outside: it is given a request, and watched until it has answered or must be given up. */
import { Worker } from "node:worker_threads";
import { type MayHang, mayHang } from "../../../kernel/hanging-calls.ts";
import type { ManifestObject } from "../manifest-objects.ts";
import {
  type FileReading,
  PHASE,
  PROGRESS,
  PROGRESS_BYTES,
  type ReadLimits,
  type ThreadMessage,
  type ThreadRequest,
} from "./reading.ts";
import { StringPool } from "./string-pool.ts";

const LOOK_MS = 100;
/** As small as the program's own (bin/kube-proxy). */
const YOUNG_MIB = 12;
/** A thread that a busy node gives no time at all is not waited for longer than this many times the limit. */
const WALL_FACTOR = 10;

/** How a request ended. After all but the first, the thread is gone or given up. */
export type ThreadOutcome =
  | { readonly kind: "answered"; readonly reading: FileReading }
  /** The document that begins in this line (0: not known) is to blame. */
  | { readonly kind: "stopped"; readonly line: number; readonly digest: string; readonly reason: string }
  /** It waits in a system call, and cannot even be ended. */
  | { readonly kind: "hangs" };

/** Where the time of a document began to count. */
interface Baseline {
  readonly phase: number;
  readonly line: number;
  readonly wallMs: number;
  cpuMs: number | undefined;
}

export class ReadingThread {
  readonly #worker: Worker;
  readonly #progress = new Int32Array(new SharedArrayBuffer(PROGRESS_BYTES));
  readonly #limits: ReadLimits;
  /** Resolves when the thread has ended, by itself or not. */
  readonly ended: Promise<void>;
  #failure = "the thread that parses has ended";
  #settle: ((outcome: ThreadOutcome) => void) | undefined;
  #objects: ManifestObject[] = [];
  #strings = new StringPool();
  #digest = "";
  #isAsking = false;

  constructor(entry: URL, limits: ReadLimits) {
    this.#limits = limits;
    this.#worker = new Worker(entry, {
      workerData: { progress: this.#progress, limits },
      name: "manifests",
      resourceLimits: { maxOldGenerationSizeMb: limits.heapMiB, maxYoungGenerationSizeMb: YOUNG_MIB },
    });
    this.#worker.unref();
    this.#worker.on("message", (message: ThreadMessage) => this.#take(message));
    this.#worker.on("error", (error: Error) => {
      const isFull = "code" in error && error.code === "ERR_WORKER_OUT_OF_MEMORY";
      this.#failure = isFull ? `it takes more than ${limits.heapMiB} MiB of memory; split it` : error.message;
    });
    this.ended = new Promise((resolve) => {
      this.#worker.once("exit", () => {
        this.#stopped(this.#failure);
        resolve();
      });
    });
  }

  /** Asks for one file. One request at a time. */
  async run(request: ThreadRequest): Promise<ThreadOutcome> {
    this.#objects = [];
    this.#strings = new StringPool();
    this.#digest = "";
    for (const place of Object.values(PROGRESS)) Atomics.store(this.#progress, place, 0);
    const hanging: MayHang = mayHang();
    const answered = new Promise<ThreadOutcome>((resolve) => {
      this.#settle = resolve;
    });
    let baseline: Baseline | undefined;
    const looks = setInterval(() => {
      baseline = this.#look(baseline);
    }, LOOK_MS);
    this.#worker.ref();
    this.#worker.postMessage(request);
    const outcome = await answered;
    clearInterval(looks);
    this.#worker.unref();
    // A thread that hangs may never return: the program must be able to end nevertheless.
    if (outcome.kind === "answered") hanging.end();
    else void this.ended.then(() => hanging.end());
    return outcome;
  }

  /** Ends the thread, at once unless it hangs in a system call. Does not keep the process alive. */
  end(): void {
    void this.#worker.terminate();
    this.#worker.unref();
    this.#stopped(this.#failure);
  }

  #take(message: ThreadMessage): void {
    if (this.#settle === undefined) return;
    if (message.kind === "text") this.#digest = message.digest;
    else if (message.kind === "objects") {
      for (const object of message.objects) this.#objects.push(this.#strings.adopt(object));
    } else this.#finish({ kind: "answered", reading: this.#withObjects(message.reading) });
  }

  #withObjects(reading: FileReading): FileReading {
    if (reading.kind !== "read") return reading;
    const objects = new Map(this.#objects.map((object) => [object.id, object]));
    this.#objects = [];
    return { ...reading, parsed: { ...reading.parsed, objects } };
  }

  #finish(outcome: ThreadOutcome): void {
    this.#settle?.(outcome);
    this.#settle = undefined;
  }

  #stopped(reason: string): void {
    const line = Atomics.load(this.#progress, PROGRESS.line);
    this.#finish({ kind: "stopped", line, digest: this.#digest, reason });
  }

  /** Judges how the work goes on. @returns since when the current piece of work counts. */
  #look(before: Baseline | undefined): Baseline {
    const phase = Atomics.load(this.#progress, PROGRESS.phase);
    const line = Atomics.load(this.#progress, PROGRESS.line);
    const wallMs = performance.now();
    if (before?.phase !== phase || before.line !== line) {
      const baseline: Baseline = { phase, line, wallMs, cpuMs: undefined };
      this.#askCpu((cpuMs) => {
        baseline.cpuMs = cpuMs;
      });
      return baseline;
    }
    if (phase === PHASE.reading) {
      if (wallMs - before.wallMs > this.#limits.readMs) this.#giveUp({ kind: "hangs" });
      return before;
    }
    if (phase === PHASE.idle) return before;
    const limitMs = this.#limitMs();
    if (wallMs - before.wallMs > limitMs * WALL_FACTOR) this.#tooSlow(limitMs);
    else if (wallMs - before.wallMs > limitMs) {
      this.#askCpu((cpuMs) => {
        before.cpuMs ??= cpuMs;
        if (cpuMs - before.cpuMs > limitMs && Atomics.load(this.#progress, PROGRESS.line) === line)
          this.#tooSlow(limitMs);
      });
    }
    return before;
  }

  #limitMs(): number {
    const { documentCpuMs, documentCpuMsPerMiB } = this.#limits;
    return documentCpuMs + (Atomics.load(this.#progress, PROGRESS.characters) / 2 ** 20) * documentCpuMsPerMiB;
  }

  #tooSlow(limitMs: number): void {
    const reason = `parsing it takes more than ${Math.round(limitMs)} ms of processor time; split or simplify it`;
    const line = Atomics.load(this.#progress, PROGRESS.line);
    this.#giveUp({ kind: "stopped", line, digest: this.#digest, reason });
  }

  #giveUp(outcome: ThreadOutcome): void {
    this.#finish(outcome);
    this.end();
  }

  /** A thread in a system call, or between two instructions of JavaScript for long, answers late or never. */
  #askCpu(then: (cpuMs: number) => void): void {
    if (this.#isAsking) return;
    this.#isAsking = true;
    this.#worker.cpuUsage().then(
      ({ user, system }) => {
        this.#isAsking = false;
        then((user + system) / 1000);
      },
      // It is not running yet, or no more.
      () => {
        this.#isAsking = false;
      },
    );
  }
}
