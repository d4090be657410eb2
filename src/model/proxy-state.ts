/**
 * The services and endpoints of one address family that this node must serve: both live maps, the pending changes, and
 * the totals that a sync needs. Events only record changes; `applyChanges` moves them into the maps. The cost of a call
 * depends on the change, not on the cluster's size.
 */
import { runAtOnce, type Steps } from "../async/turns.ts";
import type { Logger } from "../logging/logger.ts";
import type { Protocol } from "../net/protocol.ts";
import type { Endpoint } from "./endpoint.ts";
import {
  EndpointsChangeTracker,
  type EndpointsChangeTrackerOptions,
  type SliceVerdict,
} from "./endpoints-change-tracker.ts";
import { frontendKey, ownedFrontends } from "./frontend.ts";
import type { ObjectEvent } from "./object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "./objects.ts";
import { type FrontendConflict, OwnedServices } from "./owned-services.ts";
import { ServiceChangeTracker, type ServiceChangeTrackerOptions } from "./service-change-tracker.ts";
import { type ServicePort, servicePortText } from "./service-port.ts";
import type { Served } from "./stale-flows.ts";
import type { RoutedPort } from "./standing-ports.ts";

/** The changes that one `applyChanges` call moved into the live maps (reference endpoints.md §6.1, §6.2, results). */
export interface AppliedChanges {
  /** `namespace/name` of services whose ports or slices had a pending change. */
  readonly updatedServices: ReadonlySet<string>;
  /** Keys of service ports that were added, removed or changed, or whose endpoints changed. */
  readonly changedPorts: ReadonlySet<string>;
  /** Whether a successful sync must be followed by a search for stale flows. */
  readonly conntrackCleanupRequired: boolean;
  /** Keys (`frontendKey`) of non-TCP frontends that their service ports no longer own. */
  readonly goneFrontends: ReadonlySet<string>;
  /** The trigger times of endpoint changes, in milliseconds since the epoch. */
  readonly triggerTimesMs: readonly { readonly service: string; readonly timesMs: readonly number[] }[];
  /** Declared frontends that these changes gave to another service port. */
  readonly conflicts: readonly FrontendConflict[];
  /** By key: what changed service ports were before; new ones are not among them. */
  readonly replaced: ReadonlyMap<string, RoutedPort>;
}

/** The part of it that Services have. */
interface AppliedServices
  extends Pick<AppliedChanges, "updatedServices" | "changedPorts" | "goneFrontends" | "conflicts"> {
  readonly hasNewFrontends: boolean;
}

export type ProxyStateOptions = ServiceChangeTrackerOptions & EndpointsChangeTrackerOptions;

/** A read-only view of the served state: all of it, or a part as if the cluster were smaller. */
export type ServedState = Readonly<Pick<ProxyState, "services" | "endpoints" | "endpointCount" | "localReadyCounts">>;

export class ProxyState implements Served {
  readonly #log: Logger;
  /** As declared by the Services, regardless of who owns the frontends. */
  readonly #declared = new Map<string, ServicePort>();
  readonly #owned = new OwnedServices();
  readonly #endpoints = new Map<string, readonly Endpoint[]>();
  readonly #serviceChanges: ServiceChangeTracker;
  readonly #endpointsChanges: EndpointsChangeTracker;
  /** By {@link ServicePortName.key}; live. */
  readonly services: ReadonlyMap<string, ServicePort> = this.#owned.services;
  /** By {@link ServicePortName.key}; live. Lists are sorted by text and never empty; some belong to no known service. */
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]> = this.#endpoints;
  /** `namespace/name` → health-check node port, if there is one; live. */
  readonly healthCheckNodePorts: ReadonlyMap<string, number>;
  /** `namespace/name` → number of local ready endpoint IPs, unless it is 0; live. */
  readonly localReadyCounts: ReadonlyMap<string, number>;
  readonly #portCounts: Record<Protocol, number> = { TCP: 0, UDP: 0, SCTP: 0 };
  /** Most changes are of endpoints alone, and do not pass the Services. */
  #hasServiceChanges = false;
  /** The number of endpoints, ready or not, summed over the service ports. */
  endpointCount = 0;
  /** How many calls of {@link applyChanges} have changed a service port. */
  changeCount = 0;
  #leaving: ReadonlyMap<string, ReadonlyMap<string, string>> | undefined;
  /** Keys of service ports with endpoints that this node leaves out. */
  #left: readonly string[] = [];

  constructor(options: ProxyStateOptions) {
    this.#log = options.log;
    this.#serviceChanges = new ServiceChangeTracker(options);
    this.#endpointsChanges = new EndpointsChangeTracker(options);
    this.healthCheckNodePorts = this.#serviceChanges.healthCheckNodePorts;
    this.localReadyCounts = this.#endpointsChanges.localReadyCounts;
  }

  /** {@link ServicePortName.key} of a frontend's owner. @param frontend a `frontendKey`. */
  ownerOf(frontend: string): string | undefined {
    return this.#owned.ownerOf(frontend);
  }

  portCount(protocol: Protocol): number {
    return this.#portCounts[protocol];
  }

  /** The applied slices of a Service (`namespace/name`) in this family, by name. */
  slicesOf(service: string): readonly EndpointSliceRecord[] {
    return this.#endpointsChanges.slicesOf(service);
  }

  get pendingServiceCount(): number {
    return this.#serviceChanges.pendingCount;
  }

  /** @returns whether any service change is pending, even if this event changed nothing (endpoints.md §6.1). */
  onService(event: ObjectEvent<ServiceRecord>): boolean {
    const { kind, object } = event;
    const before = kind === "add" ? undefined : kind === "update" ? event.old : object;
    this.#hasServiceChanges = this.#serviceChanges.update(before, kind === "delete" ? undefined : object);
    return this.#hasServiceChanges;
  }

  /** @returns whether the slice belongs to this family, and whether this event changed anything (endpoints.md §6.2). */
  onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): SliceVerdict {
    const tracker = this.#endpointsChanges;
    if (event.kind === "delete") return tracker.update(event.object, true);
    if (event.kind === "add" || !hasMoved(event.old, event.object)) return tracker.update(event.object, false);
    // After relabelling, the old service must lose the slice, or it would keep its endpoints.
    const left = tracker.update(event.old, true);
    const joined = tracker.update(event.object, false);
    return { accepted: left.accepted || joined.accepted, changed: left.changed || joined.changed };
  }

  /** Moves every pending change into the live maps and returns the changes. */
  applyChanges(): AppliedChanges {
    return runAtOnce(this.applyingChanges());
  }

  /**
   * {@link applyChanges} in small steps, because a first load of a cluster takes seconds. The maps are consistent after
   * the last step; events between two steps may have to wait for the next call.
   */
  *applyingChanges(): Steps<AppliedChanges> {
    const replaced = new Map<string, RoutedPort>();
    const services = this.#hasServiceChanges ? yield* this.#applyServices(replaced) : NO_SERVICE_CHANGES;
    const noteBefore = (key: string, endpoints: readonly Endpoint[] = []): void => {
      const port = services.changedPorts.has(key) ? undefined : this.services.get(key);
      if (port !== undefined && !replaced.has(key)) replaced.set(key, { port, endpoints });
    };
    const endpoints = yield* this.#endpointsChanges.apply(this.#endpoints, (key, before, after) => {
      noteBefore(key, before);
      if (this.#declared.has(key)) this.endpointCount += (after?.length ?? 0) - (before?.length ?? 0);
    });
    const left = this.#leaving === undefined ? NOTHING : this.#applyLeft(this.#leaving, noteBefore);
    const changedPorts = services.changedPorts.union(endpoints.changedPorts).union(left);
    if (changedPorts.size > 0) this.changeCount += 1;
    const { hasNewFrontends, goneFrontends, conflicts } = services;
    return {
      updatedServices: services.updatedServices.union(endpoints.updatedServices),
      changedPorts,
      // Flows from before an address became a frontend were not translated, and would never be.
      conntrackCleanupRequired: endpoints.conntrackCleanupRequired || hasNewFrontends || goneFrontends.size > 0,
      goneFrontends,
      triggerTimesMs: [...endpoints.lastChangeTriggerTimes].map(([service, timesMs]) => ({ service, timesMs })),
      conflicts,
      replaced,
    };
  }

  *#applyServices(replaced: Map<string, RoutedPort>): Steps<AppliedServices> {
    this.#hasServiceChanges = false;
    const { updatedServices, changedPorts } = yield* this.#serviceChanges.apply(
      this.#declared,
      (key, before, after) => {
        const endpoints = this.#endpoints.get(key)?.length ?? 0;
        if (before === undefined) this.endpointCount += endpoints;
        if (after === undefined) this.endpointCount -= endpoints;
        this.#logReplaced(before, after);
      },
    );
    const goneFrontends = new Set<string>();
    let hasNewFrontends = false;
    const owned = yield* this.#owned.update(changedPorts, this.#declared, (key, before, after) => {
      if (before !== undefined) replaced.set(key, { port: before, endpoints: this.#endpoints.get(key) ?? [] });
      if (before !== undefined) this.#portCounts[before.protocol] -= 1;
      if (after !== undefined) this.#portCounts[after.protocol] += 1;
      const [had, has] = [endingFrontends(before), endingFrontends(after)];
      for (const frontend of had) if (!has.has(frontend)) goneFrontends.add(frontend);
      hasNewFrontends ||= !has.isSubsetOf(had);
    });
    return { updatedServices, ...owned, goneFrontends, hasNewFrontends };
  }

  /** The endpoints that this node leaves out, by key and text: why. */
  get leftOut(): ReadonlyMap<string, ReadonlyMap<string, string>> {
    const out = new Map<string, ReadonlyMap<string, string>>();
    for (const key of this.#left) {
      const own = (this.#endpoints.get(key) ?? []).flatMap(({ text, leftOut }) =>
        leftOut === undefined ? [] : [[text, leftOut] as const],
      );
      if (own.length > 0) out.set(key, new Map(own));
    }
    return out;
  }

  /** From the next {@link applyChanges} on, leaves out these endpoints, and no others. @param left by key and text: why. */
  leaveOut(left: ReadonlyMap<string, ReadonlyMap<string, string>>): void {
    this.#leaving = left;
  }

  /** @returns the keys of the service ports that differ. */
  #applyLeft(
    left: ReadonlyMap<string, ReadonlyMap<string, string>>,
    noteBefore: (key: string, endpoints: readonly Endpoint[]) => void,
  ): ReadonlySet<string> {
    const changed = new Set<string>();
    this.#leaving = undefined;
    for (const key of new Set([...this.#left, ...left.keys()])) {
      const before = this.#endpoints.get(key) ?? [];
      const why = left.get(key);
      if (before.every(({ text, leftOut }) => (leftOut !== undefined) === (why?.has(text) === true))) continue;
      const after = before.map(({ leftOut: _before, ...endpoint }): Endpoint => {
        const leftOut = why?.get(endpoint.text);
        return leftOut === undefined ? endpoint : { ...endpoint, leftOut };
      });
      noteBefore(key, before);
      this.#endpoints.set(key, after);
      changed.add(key);
    }
    this.#left = [...left.keys()];
    return changed;
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

const NOTHING: ReadonlySet<string> = new Set();
const NO_SERVICE_CHANGES: AppliedServices = {
  ...{ updatedServices: NOTHING, changedPorts: NOTHING, goneFrontends: NOTHING },
  ...{ hasNewFrontends: false, conflicts: [] },
};

/** The owned frontends of a service port whose flows end with it. */
function endingFrontends(port: ServicePort | undefined): ReadonlySet<string> {
  if (port === undefined || port.protocol === "TCP") return NOTHING;
  return new Set(ownedFrontends(port).map((frontend) => frontendKey(port.protocol, frontend)));
}
