/** Collects the causes of the next sync, times the parts of the running one, and writes it to the journal. */
import type { Clock } from "../../../async/clock.ts";
import type { SyncFailure, Written } from "../../../contract/backend.ts";
import type { ObjectEvent } from "../../../model/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../../../model/objects.ts";
import type { IpFamily } from "../../../net/ip.ts";
import type { SyncJournal } from "./sync-journal.ts";
import type { SyncCause, SyncRecord, WholeCause } from "./sync-record.ts";

/** Further causes and failures are only counted. */
const KEPT = 8;

interface RecorderOptions {
  /** @default nothing is recorded */
  readonly journal: SyncJournal | undefined;
  readonly family: IpFamily;
  readonly clock: Clock;
}

interface NotedCauses {
  readonly causes: SyncCause[];
  count: number;
  /** Monotonic time of the first cause. */
  readonly sinceMs: number;
}

/** The running sync, updated as it progresses; times are monotonic. */
interface RunningSync {
  readonly isFullSync: boolean;
  readonly noted: NotedCauses;
  readonly startMs: number;
  /** When the changes were in the model. */
  modelMs: number;
  /** When the backend had finished. */
  rulesMs: number | undefined;
  servicePorts: number;
  written: Written | undefined;
}

export class SyncRecorder {
  readonly #options: RecorderOptions;
  #noted: NotedCauses | undefined;

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  /** Adds a cause of the next sync. */
  note(cause: SyncCause): void {
    this.#noted ??= { causes: [], count: 0, sinceMs: this.#options.clock.monotonicMs() };
    this.#noted.count += 1;
    if (this.#noted.causes.length < KEPT) this.#noted.causes.push(cause);
  }

  /** Adds a changed cluster object as a cause. */
  noteObject({ kind: change, object }: ObjectEvent<ServiceRecord> | ObjectEvent<EndpointSliceRecord>): void {
    const { namespace, name } = object;
    const isSlice = "serviceName" in object;
    const service = isSlice ? object.serviceName : name;
    this.note({ kind: "object", object: isSlice ? "EndpointSlice" : "Service", change, namespace, name, service });
  }

  /** @param otherwise the cause if nothing requested this sync. */
  begin(isFullSync: boolean, startMs: number, otherwise: WholeCause["kind"]): RunningSync {
    const noted = this.#noted ?? { causes: [{ kind: otherwise }], count: 1, sinceMs: startMs };
    this.#noted = undefined;
    return { isFullSync, noted, startMs, modelMs: startMs, rulesMs: undefined, servicePorts: 0, written: undefined };
  }

  /** @param failures what the kernel rejected, or why nothing could be programmed. */
  end(sync: RunningSync, result: SyncRecord["result"], failures: readonly SyncFailure[]): void {
    const { journal, family, clock } = this.#options;
    if (journal === undefined) return;
    const { isFullSync, noted, startMs, modelMs, servicePorts, written } = sync;
    const endMs = clock.monotonicMs();
    const { rulesMs = endMs } = sync;
    journal.add({
      family,
      endedMs: clock.now(),
      isFullSync,
      causes: noted.causes,
      furtherCauses: noted.count - noted.causes.length,
      servicePorts,
      stages: {
        waiting: Math.max(0, startMs - noted.sinceMs),
        model: modelMs - startMs,
        rules: rulesMs - modelMs,
        kernel: written?.kernelMs ?? null,
        after: endMs - rulesMs,
      },
      written: written?.counts ?? null,
      result,
      failures: failures.slice(0, KEPT),
      furtherFailures: Math.max(0, failures.length - KEPT),
    });
  }
}
