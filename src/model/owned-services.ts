/**
 * The service ports for the proxy modes: as declared, except that each frontend belongs to only one of them. The owners depend
 * only on the declarations, not on the order of events. The API server keeps cluster IPs and node ports unique, but not external
 * and load-balancer IPs, and a folder of manifests keeps nothing unique. Without precedence, any user who may write `externalIPs`
 * could take over another Service's cluster IP.
 */
import type { Steps } from "../async/turns.ts";
import type { Logger } from "../logging/logger.ts";
import { comparePrecedence, declaredFrontends, type FrontendKind, frontendKey, onePerDestination } from "./frontend.ts";
import { type Candidate, KeyOwners } from "./key-owners.ts";
import type { OnReplaced } from "./service-change-tracker.ts";
import { equalServicePorts, type ServicePort } from "./service-port.ts";
import type { ServicePortName } from "./service-port-name.ts";

/** A frontend that one service port declares but another one owns. */
export interface FrontendConflict {
  /** A {@link frontendKey}. */
  readonly frontend: string;
  readonly loser: ServicePortName;
  readonly loserKind: FrontendKind;
  readonly owner: ServicePortName;
  readonly ownerKind: FrontendKind;
}

export class OwnedServices {
  readonly #services = new Map<string, ServicePort>();
  /** By {@link ServicePortName.key}; live. */
  readonly services: ReadonlyMap<string, ServicePort> = this.#services;
  readonly #owners = new KeyOwners<FrontendKind>(comparePrecedence);

  /** {@link ServicePortName.key} of a frontend's owner. @param frontend a {@link frontendKey}. */
  ownerOf(frontend: string): string | undefined {
    return this.#owners.effective(frontend)?.owner;
  }

  /**
   * Applies changed declarations in steps, between which they must not change. Resolves conflicts after all of them are
   * applied, because renaming a port is two changes.
   *
   * @param declared all declarations by key.
   * @param onReplaced called for every change.
   */
  *update(
    changed: Iterable<string>,
    declared: ReadonlyMap<string, ServicePort>,
    onReplaced?: OnReplaced<ServicePort>,
  ): Steps<{
    /** Keys of service ports that changed. */
    readonly changedPorts: ReadonlySet<string>;
    /** Frontends that these changes took from a service port. */
    readonly conflicts: readonly FrontendConflict[];
  }> {
    const affected = new Set(changed);
    for (const key of [...affected]) {
      for (const other of this.#declare(key, declared.get(key))) affected.add(other);
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
      const losses = this.#lossesOf(key, port);
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

  /** Replaces a service port's declaration. @returns the keys of other service ports that gained or lost a frontend. */
  #declare(key: string, after: ServicePort | undefined): ReadonlySet<string> {
    const [old, current] = [kindsOf(this.#services.get(key)), kindsOf(after)];
    const others = new Set<string>();
    for (const frontend of old.size === 0 ? current.keys() : new Set([...old.keys(), ...current.keys()])) {
      const [had, has] = [old.get(frontend), current.get(frontend)];
      if (had === has) continue;
      const before = this.ownerOf(frontend);
      this.#owners.change(key, frontend, had, has);
      const now = this.ownerOf(frontend);
      for (const one of before === now ? [] : [before, now]) if (one !== undefined && one !== key) others.add(one);
    }
    return others;
  }

  /** The owners of frontends that a service port declares but does not own; undefined if it owns all (usual). */
  #lossesOf(key: string, port: ServicePort): ReadonlyMap<string, Candidate<FrontendKind>> | undefined {
    let losses: Map<string, Candidate<FrontendKind>> | undefined;
    for (const declared of declaredFrontends(port)) {
      const frontend = frontendKey(port.protocol, declared);
      const owner = this.#owners.effective(frontend);
      if (owner === undefined || owner.owner === key) continue;
      losses ??= new Map();
      losses.set(frontend, owner);
    }
    return losses;
  }
}

function kindsOf(port: ServicePort | undefined): ReadonlyMap<string, FrontendKind> {
  if (port === undefined) return new Map();
  const declared = onePerDestination(port, declaredFrontends(port));
  return new Map(declared.map((frontend) => [frontendKey(port.protocol, frontend), frontend.kind]));
}

function conflictOf(
  port: ServicePort,
  frontend: string,
  { owner: key, value: kind }: Candidate<FrontendKind>,
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

/** What one Service loses to another with one change. */
export interface ConflictSummary {
  readonly first: FrontendConflict;
  /** How many frontends, with the first. */
  readonly count: number;
}

/** One summary for each pair of Services, since one may have thousands of ports with several addresses. */
export function summariesOf(conflicts: readonly FrontendConflict[]): readonly ConflictSummary[] {
  const pairs = new Map<string, { readonly first: FrontendConflict; count: number }>();
  for (const first of conflicts) {
    const key = `${first.loser.service} ${first.owner.service}`;
    const pair = pairs.get(key) ?? { first, count: 0 };
    pair.count += 1;
    pairs.set(key, pair);
  }
  return [...pairs.values()];
}

/** Describes the conflict for people: the field and the remedy. */
export function conflictText({ first, count }: ConflictSummary): string {
  const { frontend, loser, loserKind, owner, ownerKind } = first;
  const others = count === 1 ? "" : `; nor at ${count - 1} more of ${owner.service}'s addresses`;
  return (
    `${FIELDS[loserKind]}: ${frontend} belongs to ${owner.text} (${FIELDS[ownerKind]}), so ${loser.text} does not answer there${others}; ` +
    "give one of them another address or port. Cluster IPs take precedence over load-balancer IPs, and these over external IPs; then the first name wins"
  );
}

/** Logs newly lost frontends: a line for each pair of Services. */
export function logConflicts(conflicts: readonly ConflictSummary[], log: Logger): void {
  for (const { first, count } of conflicts) {
    const { frontend, loser, loserKind, owner, ownerKind } = first;
    log.warn("Several service ports claim the same address; this one does not answer there", {
      servicePort: loser.text,
      field: FIELDS[loserKind],
      frontend,
      owner: owner.text,
      ownerField: FIELDS[ownerKind],
      ...(count > 1 && { moreOfThisPair: count - 1 }),
    });
  }
}
