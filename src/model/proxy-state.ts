/**
 * The services and endpoints of one address family as this node must serve them: both live maps, what is still pending,
 * and the totals that a sync needs. Events only note changes; `applyChanges` moves them into the maps. Every call costs
 * what the change costs, however large the cluster.
 */
import { runAtOnce, type Steps } from "../async/steps.ts";
import type { ObjectEvent } from "../cluster/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../cluster/objects.ts";
import type { Logger } from "../logging/logger.ts";
import type { IpFamily } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";
import type { Endpoint } from "./endpoint.ts";
import { EndpointsChangeTracker, type SliceVerdict } from "./endpoints-change-tracker.ts";
import { frontendKey, ownedFrontends } from "./frontend.ts";
import { type FrontendConflict, OwnedServices } from "./owned-services.ts";
import { ServiceChangeTracker } from "./service-change-tracker.ts";
import { type ServicePort, servicePortText } from "./service-port.ts";
import type { OnProblem } from "./service-ports.ts";
import type { Served } from "./stale-flows.ts";

/** What one call of `applyChanges` moved into the live maps (reference endpoints.md §6.1 and §6.2, results). */
export interface AppliedChanges {
  /** `namespace/name` of services whose ports or slices had a pending change. */
  readonly updatedServices: ReadonlySet<string>;
  /** Keys of service ports that were added, removed or differ, or whose endpoints do. */
  readonly changedPorts: ReadonlySet<string>;
  /** Whether stale flows must be looked for after a successful sync. */
  readonly conntrackCleanupRequired: boolean;
  /** What service ports of other protocols than TCP owned and do not own any more, as `frontendKey` writes it. */
  readonly goneFrontends: ReadonlySet<string>;
  /** When the endpoint changes were caused, in milliseconds since the epoch. */
  readonly triggerTimesMs: readonly { readonly service: string; readonly timesMs: readonly number[] }[];
  /** Frontends that service ports declare and have lost to others with these changes. */
  readonly conflicts: readonly FrontendConflict[];
}

export interface ProxyStateOptions {
  readonly family: IpFamily;
  /** Empty when unknown: no endpoint is local then. */
  readonly nodeName: string;
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** @default the clock is not set */
  readonly monotonicMs?: () => number;
  readonly log: Logger;
}

/** What is served, for readers: all of it, or a part that stands for a smaller cluster. */
export type ServedState = Pick<ProxyState, "services" | "endpoints" | "endpointCount" | "localReadyCounts">;

export class ProxyState implements Served {
  readonly #log: Logger;
  /** As the Services say, no matter which owns the frontends. */
  readonly #declared = new Map<string, ServicePort>();
  readonly #owned = new OwnedServices();
  readonly #endpoints = new Map<string, readonly Endpoint[]>();
  readonly #serviceChanges: ServiceChangeTracker;
  readonly #endpointsChanges: EndpointsChangeTracker;
  /** By {@link ServicePortName.key}; live. */
  readonly services: ReadonlyMap<string, ServicePort> = this.#owned.services;
  /** By {@link ServicePortName.key}; live. Lists are sorted by text and never empty; some belong to no known service. */
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]> = this.#endpoints;
  /** `namespace/name` → health-check node port, where there is one; live. */
  readonly healthCheckNodePorts: ReadonlyMap<string, number>;
  /** `namespace/name` → number of local ready endpoint IPs, where it is not 0; live. */
  readonly localReadyCounts: ReadonlyMap<string, number>;
  readonly #portCounts: Record<Protocol, number> = { TCP: 0, UDP: 0, SCTP: 0 };
  #endpointCount = 0;

  constructor(options: ProxyStateOptions) {
    const { family, nodeName, allowExternalIPs, now, monotonicMs, log } = options;
    const onProblem: OnProblem = (message, facts) => log.error(message, undefined, facts);
    this.#log = log;
    this.#serviceChanges = new ServiceChangeTracker({ family, allowExternalIPs, onProblem });
    this.#endpointsChanges = new EndpointsChangeTracker({
      family,
      nodeName,
      now,
      monotonicMs,
      onProblem,
      onIgnored: (message, facts) => log.v(4, message, facts),
    });
    this.healthCheckNodePorts = this.#serviceChanges.healthCheckNodePorts;
    this.localReadyCounts = this.#endpointsChanges.localReadyCounts;
  }

  /** {@link ServicePortName.key} of the service port that a frontend belongs to, as `frontendKey` writes it. */
  ownerOf(frontend: string): string | undefined {
    return this.#owned.ownerOf(frontend);
  }

  /** Number of service ports of a protocol. */
  portCount(protocol: Protocol): number {
    return this.#portCounts[protocol];
  }

  /** Sum over the service ports of their endpoints, ready or not. */
  get endpointCount(): number {
    return this.#endpointCount;
  }

  /** The applied slices of a Service (`namespace/name`) in this family, by name. */
  slicesOf(service: string): readonly EndpointSliceRecord[] {
    return this.#endpointsChanges.slicesOf(service);
  }

  /** Number of services with a pending change. */
  get pendingServiceCount(): number {
    return this.#serviceChanges.pendingCount;
  }

  /** @returns whether any service change is pending, even when this event changed nothing (endpoints.md §6.1). */
  onService(event: ObjectEvent<ServiceRecord>): boolean {
    switch (event.kind) {
      case "add":
        return this.#serviceChanges.update(undefined, event.object);
      case "update":
        return this.#serviceChanges.update(event.old, event.object);
      case "delete":
        return this.#serviceChanges.update(event.object, undefined);
    }
  }

  /** @returns whether the slice concerns this family, and whether this event changed anything (endpoints.md §6.2). */
  onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): SliceVerdict {
    const tracker = this.#endpointsChanges;
    if (event.kind === "delete") return tracker.update(event.object, true);
    if (event.kind === "add" || !hasMoved(event.old, event.object)) return tracker.update(event.object, false);
    // Relabelled: the old owner must lose the slice, or its endpoints would stay in the old service.
    const left = tracker.update(event.old, true);
    const joined = tracker.update(event.object, false);
    return { accepted: left.accepted || joined.accepted, changed: left.changed || joined.changed };
  }

  /** Moves every pending change into the live maps and tells what it was. */
  applyChanges(): AppliedChanges {
    return runAtOnce(this.applyingChanges());
  }

  /**
   * {@link applyChanges} in steps that each cost little: a cluster that comes at once takes seconds. The maps are of use when
   * the last step is done; events that come between two may have to wait for the next time.
   */
  *applyingChanges(): Steps<AppliedChanges> {
    const services = yield* this.#serviceChanges.apply(this.#declared, (key, before, after) => {
      const endpoints = this.#endpoints.get(key)?.length ?? 0;
      if (before === undefined) this.#endpointCount += endpoints;
      if (after === undefined) this.#endpointCount -= endpoints;
      this.#logReplaced(before, after);
    });
    const goneFrontends = new Set<string>();
    let hasNewFrontends = false;
    const owned = yield* this.#owned.update(services.changedPorts, this.#declared, (_key, before, after) => {
      if (before !== undefined) this.#portCounts[before.protocol] -= 1;
      if (after !== undefined) this.#portCounts[after.protocol] += 1;
      const [had, has] = [endingFrontends(before), endingFrontends(after)];
      for (const frontend of had) if (!has.has(frontend)) goneFrontends.add(frontend);
      hasNewFrontends ||= !has.isSubsetOf(had);
    });
    const endpoints = yield* this.#endpointsChanges.apply(this.#endpoints, (key, before, after) => {
      if (this.#declared.has(key)) this.#endpointCount += (after?.length ?? 0) - (before?.length ?? 0);
    });
    return {
      updatedServices: services.updatedServices.union(endpoints.updatedServices),
      changedPorts: owned.changedPorts.union(endpoints.changedPorts),
      // What was sent to an address before it was a frontend was not translated, and would never be.
      conntrackCleanupRequired: endpoints.conntrackCleanupRequired || hasNewFrontends || goneFrontends.size > 0,
      goneFrontends,
      triggerTimesMs: [...endpoints.lastChangeTriggerTimes].map(([service, timesMs]) => ({ service, timesMs })),
      conflicts: owned.conflicts,
    };
  }

  #logReplaced(before: ServicePort | undefined, after: ServicePort | undefined): void {
    const port = after ?? before;
    if (port === undefined || !this.#log.isVerbose(4)) return;
    const action = before === undefined ? "Adding new" : after === undefined ? "Removing" : "Updating existing";
    this.#log.v(4, `${action} service port`, { portName: port.name.text, servicePort: servicePortText(port) });
  }
}

/** Whether an update moved a slice from one service (or family) to another. */
function hasMoved(old: EndpointSliceRecord, current: EndpointSliceRecord): boolean {
  return old.serviceName !== current.serviceName || old.addressType !== current.addressType;
}

const NO_FRONTENDS: ReadonlySet<string> = new Set();

/** What a service port owns, if its flows are ended with it. */
function endingFrontends(port: ServicePort | undefined): ReadonlySet<string> {
  if (port === undefined || port.protocol === "TCP") return NO_FRONTENDS;
  return new Set(ownedFrontends(port).map((frontend) => frontendKey(port.protocol, frontend)));
}
