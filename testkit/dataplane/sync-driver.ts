/**
 * Drives a backend as the proxier does: it gets the ports that changed since the last sync that resolved and, after one
 * that rejects, all of its ports again, in full. For tests and benchmarks of a mode without a proxier.
 */

import { FULL_SYNC, merged, NO_WORK, type PendingWork } from "../../src/agent/sync/pending-work.ts";
import type { Backend, LostRules, SyncOutcome } from "../../src/contract/backend.ts";
import type { Endpoint } from "../../src/model/endpoint.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import type { IpAddress } from "../../src/net/ip.ts";

/** The model's content; live. */
export interface ModelView {
  readonly services: ReadonlyMap<string, ServicePort>;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
  /** @default counted at every sync */
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
  readonly otherNodes = new Map<IpAddress, string>();
  #pending: PendingWork = FULL_SYNC;
  #hasLost = false;

  constructor(model: ModelView) {
    this.model = model;
  }

  /** Whether a change, a failed sync or damage requires another sync. */
  get isSyncDue(): boolean {
    return this.#pending.isFull || this.#hasLost || this.#pending.ports.size > 0;
  }

  /** These ports or their endpoints have changed. */
  touch(keys: Iterable<string>): void {
    this.#owe({ ports: new Set(keys) });
  }

  /** Something that affects everything has changed. */
  requireFullSync(): void {
    this.#owe({ isFull: true });
  }

  /** Called like a watching backend's `onLost`. */
  lose(lost?: LostRules): void {
    this.#hasLost = true;
    this.#owe(lost === undefined ? { isFull: true } : { ports: lost.ports });
  }

  /** The next sync is another process's first one. */
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

  /** One full sync of another backend; what this one still owes stays as it was. */
  async syncOther(backend: Backend): Promise<SyncOutcome> {
    return await backend.sync(this.#inputOf(FULL_SYNC), NEVER);
  }

  #inputOf({ isFull, ports }: PendingWork) {
    const { services, endpoints } = this.model;
    const { endpointCount = countOf(endpoints) } = this.model;
    const { zone, serviceCIDRs, otherNodes } = this;
    const ofNode = { zone, serviceCIDRs, otherNodes, wantsFormerEndpoints: () => true };
    return { isFullSync: isFull, services, endpoints, endpointCount, changedPorts: ports, ...ofNode };
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
