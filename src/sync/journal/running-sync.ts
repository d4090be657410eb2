/** One sync while it runs: notes when its parts end, and what came of them. */
import type { Clock } from "../../async/clock.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { SyncFailure, Written } from "../backend.ts";
import type { NotedCauses } from "./cause-notes.ts";
import type { SyncJournal } from "./sync-journal.ts";

/** Failures beyond these are counted only. */
const KEPT_FAILURES = 8;

interface RunningSyncOptions {
  readonly journal: SyncJournal;
  readonly family: IpFamily;
  readonly clock: Clock;
  readonly isFullSync: boolean;
  readonly noted: NotedCauses;
  /** Monotonic. */
  readonly startMs: number;
}

export class RunningSync {
  readonly #options: RunningSyncOptions;
  #modelMs: number;
  #rulesMs: number | undefined;
  #servicePorts = 0;
  #written: Written | undefined;

  constructor(options: RunningSyncOptions) {
    this.#options = options;
    this.#modelMs = options.startMs;
  }

  /** The changes are in the model. */
  onModel(servicePorts: number): void {
    this.#modelMs = this.#options.clock.monotonicMs();
    this.#servicePorts = servicePorts;
  }

  /** The backend has done what it could. */
  onRules(written: Written | undefined): void {
    this.#rulesMs = this.#options.clock.monotonicMs();
    this.#written = written;
  }

  /** Writes it down. @param failures what the kernel refused, or why nothing could be programmed. */
  end(result: "done" | "refused" | "failed", failures: readonly SyncFailure[]): void {
    const { journal, family, clock, isFullSync, noted, startMs } = this.#options;
    const endMs = clock.monotonicMs();
    const rulesMs = this.#rulesMs ?? endMs;
    journal.add({
      family,
      endedMs: clock.now(),
      isFullSync,
      causes: noted.causes,
      furtherCauses: noted.furtherCauses,
      servicePorts: this.#servicePorts,
      stages: {
        waiting: Math.max(0, startMs - (noted.sinceMs ?? startMs)),
        model: this.#modelMs - startMs,
        rules: rulesMs - this.#modelMs,
        kernel: this.#written?.kernelMs ?? null,
        after: endMs - rulesMs,
      },
      written: this.#written?.counts ?? null,
      result,
      failures: failures.slice(0, KEPT_FAILURES),
      furtherFailures: Math.max(0, failures.length - KEPT_FAILURES),
    });
  }
}
