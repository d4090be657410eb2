/**
 * Drives a backend as the proxier does: it is handed the ports that changed since the last sync that resolved, and all that a
 * sync was given again, in full, after one that rejects. For tests and benchmarks of a mode without a proxier.
 */
import type { Endpoint } from "../../src/model/endpoint.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import type { Backend, LostRules, SyncOutcome } from "../../src/sync/backend.ts";
import { FULL_SYNC, merged, NO_WORK, type PendingWork } from "../../src/sync/pending-work.ts";

/** What the model says; live. */
export interface ModelView {
  readonly services: ReadonlyMap<string, ServicePort>;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
  /** @default counted with every sync */
  readonly endpointCount?: number;
}

export interface DrivenSync {
  readonly full?: boolean;
  readonly signal?: AbortSignal;
}

export class SyncDriver {
  readonly model: ModelView;
  zone: string | undefined;
  serviceCIDRs: readonly string[] = [];
  #pending: PendingWork = FULL_SYNC;
  #hasLost = false;

  constructor(model: ModelView) {
    this.model = model;
  }

  /** Whether a change, a failed sync or damage calls for another one. */
  get isSyncDue(): boolean {
    return this.#pending.isFull || this.#hasLost || this.#pending.ports.size > 0;
  }

  /** These ports, or their endpoints, are not what they were. */
  touch(keys: Iterable<string>): void {
    this.#owe({ ports: new Set(keys) });
  }

  /** Something that concerns everything is not what it was. */
  requireFullSync(): void {
    this.#owe({ isFull: true });
  }

  /** As a backend says it when it watches. */
  lose(lost?: LostRules): void {
    this.#hasLost = true;
    this.#owe(lost === undefined ? { isFull: true } : { ports: lost.ports });
  }

  /** The next sync is the first one of another process. */
  forget(): void {
    this.#pending = FULL_SYNC;
  }

  async sync(backend: Backend, { full = false, signal = NEVER }: DrivenSync = {}): Promise<SyncOutcome> {
    const work = merged(this.#pending, { isFull: full });
    this.#pending = NO_WORK;
    this.#hasLost = false;
    try {
      return await backend.sync(this.#inputOf(work), signal);
    } catch (error) {
      this.#pending = merged({ ...work, isFull: true }, this.#pending);
      throw error;
    }
  }

  /** One full sync of another backend, after which this one's owes what it owed. */
  async syncOther(backend: Backend): Promise<SyncOutcome> {
    return await backend.sync(this.#inputOf(FULL_SYNC), NEVER);
  }

  #inputOf({ isFull, ports }: PendingWork) {
    const { services, endpoints } = this.model;
    const { endpointCount = countOf(endpoints) } = this.model;
    const { zone, serviceCIDRs } = this;
    return { isFullSync: isFull, services, endpoints, endpointCount, changedPorts: ports, zone, serviceCIDRs };
  }

  #owe(work: Partial<PendingWork>): void {
    this.#pending = merged(this.#pending, work);
  }
}

function countOf(endpoints: ModelView["endpoints"]): number {
  let count = 0;
  for (const list of endpoints.values()) count += list.length;
  return count;
}

const NEVER = new AbortController().signal;
