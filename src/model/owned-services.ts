/**
 * The service ports that proxy modes get: as they are declared, but each frontend belongs to one of them
 * (`frontend-ownership.ts`). In any order of events, the same declarations give the same owners.
 */
import type { Steps } from "../async/steps.ts";
import type { Logger } from "../logging/logger.ts";
import { declaredFrontends, type FrontendKind, frontendKey } from "./frontend.ts";
import { type Candidate, FrontendOwnership } from "./frontend-ownership.ts";
import type { OnReplaced } from "./service-change-tracker.ts";
import { equalServicePorts, type ServicePort } from "./service-port.ts";
import type { ServicePortName } from "./service-port-name.ts";

/** A frontend that a service port declares and another one has. */
export interface FrontendConflict {
  /** As {@link frontendKey} writes it. */
  readonly frontend: string;
  readonly loser: ServicePortName;
  readonly loserKind: FrontendKind;
  readonly owner: ServicePortName;
  readonly ownerKind: FrontendKind;
}

interface OwnedChanges {
  /** Keys of service ports that are not what they were. */
  readonly changedPorts: ReadonlySet<string>;
  /** Frontends that were lost with these changes. */
  readonly conflicts: readonly FrontendConflict[];
}

export class OwnedServices {
  readonly #services = new Map<string, ServicePort>();
  /** By {@link ServicePortName.key}; live. */
  readonly services: ReadonlyMap<string, ServicePort> = this.#services;
  readonly #ownership = new FrontendOwnership();

  /** {@link ServicePortName.key} of the service port that has a frontend, as {@link frontendKey} writes it. */
  ownerOf(frontend: string): string | undefined {
    return this.#ownership.ownerOf(frontend)?.key;
  }

  /**
   * Takes over declarations that changed, in steps between which they must not change. Conflicts are judged when all are in: a
   * renamed port is two changes.
   *
   * @param declared all of them, by key.
   * @param onReplaced called for every change.
   */
  *update(
    changed: Iterable<string>,
    declared: ReadonlyMap<string, ServicePort>,
    onReplaced?: OnReplaced<ServicePort>,
  ): Steps<OwnedChanges> {
    const affected = new Set(changed);
    for (const key of [...affected]) {
      for (const other of this.#ownership.replace(key, this.#services.get(key), declared.get(key))) affected.add(other);
      yield;
    }
    const changedPorts = new Set<string>();
    const conflicts: FrontendConflict[] = [];
    for (const key of affected) {
      yield;
      const before = this.#services.get(key);
      const port = declared.get(key);
      if (port === undefined) {
        if (!this.#services.delete(key)) continue;
        changedPorts.add(key);
        onReplaced?.(key, before, undefined);
        continue;
      }
      const losses = this.#ownership.lossesOf(key, port);
      const after = losses === undefined ? port : { ...port, lostFrontends: new Set(losses.keys()) };
      if (before !== undefined && equalServicePorts(before, after)) continue;
      this.#services.set(key, after);
      changedPorts.add(key);
      onReplaced?.(key, before, after);
      for (const [frontend, owner] of losses ?? []) {
        if (before?.lostFrontends?.has(frontend) === true) continue;
        const conflict = conflictOf(port, frontend, owner, declared);
        if (conflict !== undefined) conflicts.push(conflict);
      }
    }
    return { changedPorts, conflicts };
  }
}

function conflictOf(
  port: ServicePort,
  frontend: string,
  { key, kind }: Candidate,
  declared: ReadonlyMap<string, ServicePort>,
): FrontendConflict | undefined {
  const owner = declared.get(key)?.name;
  const own = declaredFrontends(port).find((one) => frontendKey(port.protocol, one) === frontend);
  if (owner === undefined || own === undefined) return undefined;
  return { frontend, loser: port.name, loserKind: own.kind, owner, ownerKind: kind };
}

const FIELDS: Readonly<Record<FrontendKind, string>> = {
  "cluster-ip": "spec.clusterIPs",
  "load-balancer": "status.loadBalancer.ingress",
  "external-ip": "spec.externalIPs",
  "node-port": "spec.ports[].nodePort",
};

/** For people who look at the Service: the field, and what to do. Pure. */
export function conflictText({ frontend, loser, loserKind, owner, ownerKind }: FrontendConflict): string {
  return (
    `${FIELDS[loserKind]}: ${frontend} belongs to ${owner.text} (${FIELDS[ownerKind]}) and does not lead to ${loser.text}; ` +
    "give one of them another address or port. Cluster IPs go before load-balancer IPs, these before external IPs, then names decide"
  );
}

/** One line for each frontend that was lost, when it is lost. */
export function logConflicts(conflicts: readonly FrontendConflict[], log: Logger): void {
  for (const { frontend, loser, loserKind, owner, ownerKind } of conflicts) {
    log.warn("Several service ports claim the same address; this one does not answer there", {
      servicePort: loser.text,
      field: FIELDS[loserKind],
      frontend,
      owner: owner.text,
      ownerField: FIELDS[ownerKind],
    });
  }
}
