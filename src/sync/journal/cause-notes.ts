/** Collects why the next sync will run. Costs the same however many causes there are. */
import type { ObjectEvent } from "../../cluster/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../../cluster/objects.ts";
import type { SyncCause, WholeCause } from "./sync-record.ts";

/** Causes beyond these are counted only. */
const KEPT_CAUSES = 8;

export interface NotedCauses {
  readonly causes: readonly SyncCause[];
  readonly furtherCauses: number;
  /** Monotonic time of the first; undefined when there is none. */
  readonly sinceMs: number | undefined;
}

export class CauseNotes {
  readonly #nowMs: () => number;
  #causes: SyncCause[] = [];
  #count = 0;
  #sinceMs: number | undefined;

  /** @param nowMs monotonic. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  onService({ kind, object: { namespace, name } }: ObjectEvent<ServiceRecord>): void {
    if (this.#isKept()) {
      this.#causes.push({ kind: "object", object: "Service", change: kind, namespace, name, service: name });
    }
  }

  onEndpointSlice({ kind, object: { namespace, name, serviceName } }: ObjectEvent<EndpointSliceRecord>): void {
    if (!this.#isKept()) return;
    this.#causes.push({
      kind: "object",
      object: "EndpointSlice",
      change: kind,
      namespace,
      name,
      service: serviceName,
    });
  }

  onLost(servicePorts: number | null, by: string | null): void {
    if (this.#isKept()) this.#causes.push({ kind: "repair", servicePorts, by });
  }

  onWhole(kind: WholeCause["kind"]): void {
    if (this.#isKept()) this.#causes.push({ kind });
  }

  /** All since the last call. */
  take(): NotedCauses {
    const noted = { causes: this.#causes, furtherCauses: this.#count - this.#causes.length, sinceMs: this.#sinceMs };
    this.#causes = [];
    this.#count = 0;
    this.#sinceMs = undefined;
    return noted;
  }

  #isKept(): boolean {
    this.#count += 1;
    this.#sinceMs ??= this.#nowMs();
    return this.#causes.length < KEPT_CAUSES;
  }
}
