/**
 * Tracks pending Service changes of one family (reference endpoints.md §6.1). Work and memory depend on the pending
 * changes, not on the number of services.
 */
import { isDeepStrictEqual } from "../async/node-util.ts";
import type { Steps } from "../async/turns.ts";
import type { Logger } from "../logging/logger.ts";
import type { IpFamily } from "../net/ip.ts";
import { objectKeyText, type ServiceRecord } from "./objects.ts";
import { equalServicePorts, type ServicePort } from "./service-port.ts";
import { type OnProblem, type ServicePortMap, servicePortsOf } from "./service-ports.ts";

/** Called for every changed entry of a live map; `before` is undefined for an addition, `after` for a removal. */
export type OnReplaced<T> = (key: string, before: T | undefined, after: T | undefined) => void;

export interface ServiceChanges {
  /** `namespace/name` of every service that had a pending change. */
  readonly updatedServices: ReadonlySet<string>;
  /** Keys of service ports whose content changed. */
  readonly changedPorts: ReadonlySet<string>;
}

export interface ServiceChangeTrackerOptions {
  readonly family: IpFamily;
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  readonly log: Logger;
}

export class ServiceChangeTracker {
  readonly #options: ServiceChangeTrackerOptions;
  #pending = new Map<string, { readonly previous: ServicePortMap | undefined; current: ServicePortMap | undefined }>();
  readonly #healthCheckNodePorts = new Map<string, number>();
  /** `namespace/name` → health-check node port, of the applied services that have one (endpoints.md §6.2, helpers). */
  readonly healthCheckNodePorts: ReadonlyMap<string, number> = this.#healthCheckNodePorts;

  constructor(options: ServiceChangeTrackerOptions) {
    this.#options = options;
  }

  get pendingCount(): number {
    return this.#pending.size;
  }

  /**
   * Records one event; `previous` is undefined for an addition, `current` for a deletion. Changes that cancel out leave
   * nothing pending.
   *
   * @returns whether any change of any service is pending, even if this event changed nothing.
   */
  update(previous: ServiceRecord | undefined, current: ServiceRecord | undefined): boolean {
    const named = current ?? previous;
    if (named === undefined) return false;
    const service = objectKeyText(named);
    let entry = this.#pending.get(service);
    // A resync delivers the same object again for every service, which changes nothing.
    if (entry === undefined && previous === current) return this.#pending.size > 0;
    if (entry === undefined) {
      entry = { previous: this.#portsOf(previous), current: undefined };
      this.#pending.set(service, entry);
    }
    const { log } = this.#options;
    entry.current = this.#portsOf(current, (message, facts) => log.error(message, undefined, facts));
    // A skipped service (undefined) differs from one without ports.
    if (isDeepStrictEqual(entry.previous, entry.current)) this.#pending.delete(service);
    return this.#pending.size > 0;
  }

  /** Moves all pending changes into the live map, one step per service. Events between two steps stay pending. */
  *apply(live: Map<string, ServicePort>, onReplaced?: OnReplaced<ServicePort>): Steps<ServiceChanges> {
    const updatedServices = new Set<string>();
    const changedPorts = new Set<string>();
    const pending = this.#pending;
    this.#pending = new Map();
    for (const [service, { previous, current }] of pending) {
      updatedServices.add(service);
      let healthCheckNodePort = 0;
      for (const [key, port] of current ?? []) {
        if (port.healthCheckNodePort !== 0) healthCheckNodePort = port.healthCheckNodePort;
        const before = live.get(key);
        if (before !== undefined && equalServicePorts(before, port)) continue;
        live.set(key, port);
        changedPorts.add(key);
        onReplaced?.(key, before, port);
      }
      for (const key of previous?.keys() ?? []) {
        const before = live.get(key);
        if (before === undefined || current?.has(key) === true) continue;
        live.delete(key);
        changedPorts.add(key);
        onReplaced?.(key, before, undefined);
      }
      if (healthCheckNodePort === 0) this.#healthCheckNodePorts.delete(service);
      else this.#healthCheckNodePorts.set(service, healthCheckNodePort);
      yield;
    }
    return { updatedServices, changedPorts };
  }

  #portsOf(service: ServiceRecord | undefined, onProblem?: OnProblem): ServicePortMap | undefined {
    const { family, allowExternalIPs } = this.#options;
    return service && servicePortsOf(service, family, { allowExternalIPs, onProblem });
  }
}
