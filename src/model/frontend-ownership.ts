/**
 * Decides which service port owns a frontend that several declare. The API server keeps cluster IPs and node ports
 * unique, but not external and load-balancer IPs, and a folder of manifests keeps nothing unique. Without precedence,
 * any user who may write `externalIPs` could take over another Service's cluster IP.
 */
import { comparePrecedence, declaredFrontends, type FrontendKind, frontendKey, onePerDestination } from "./frontend.ts";
import type { ServicePort } from "./service-port.ts";

/** A service port that declares a frontend, and the kind of that frontend. */
export interface Candidate {
  /** {@link ServicePortName.key} */
  readonly key: string;
  readonly kind: FrontendKind;
}

/** An index of frontends that is updated port by port. */
export class FrontendOwnership {
  // Almost every frontend has one candidate, which is stored without a list; several are in a list by precedence.
  readonly #candidates = new Map<string, Candidate | Candidate[]>();

  /**
   * Replaces a service port's declaration.
   *
   * @param before `after` of the previous call for this key.
   * @returns the keys of other service ports that gained or lost a frontend.
   */
  replace(key: string, before: ServicePort | undefined, after: ServicePort | undefined): ReadonlySet<string> {
    const old = before === undefined ? NOTHING : kindsOf(before);
    const current = after === undefined ? NOTHING : kindsOf(after);
    const affected = new Set<string>();
    for (const [frontend, kind] of old) {
      if (current.get(frontend) === kind) continue;
      this.#change(frontend, affected, () => this.#remove(frontend, key));
    }
    for (const [frontend, kind] of current) {
      if (old.get(frontend) === kind) continue;
      this.#change(frontend, affected, () => this.#add(frontend, { key, kind }));
    }
    affected.delete(key);
    return affected;
  }

  /** The owners of frontends that a service port declares but does not own; undefined if it owns all (usual). */
  lossesOf(key: string, port: ServicePort): ReadonlyMap<string, Candidate> | undefined {
    let losses: Map<string, Candidate> | undefined;
    for (const declared of declaredFrontends(port)) {
      const frontend = frontendKey(port.protocol, declared);
      const owner = this.ownerOf(frontend);
      if (owner === undefined || owner.key === key) continue;
      losses ??= new Map();
      losses.set(frontend, owner);
    }
    return losses;
  }

  ownerOf(frontend: string): Candidate | undefined {
    const candidates = this.#candidates.get(frontend);
    return Array.isArray(candidates) ? candidates[0] : candidates;
  }

  #change(frontend: string, affected: Set<string>, change: () => void): void {
    const before = this.ownerOf(frontend)?.key;
    change();
    const after = this.ownerOf(frontend)?.key;
    if (before === after) return;
    if (before !== undefined) affected.add(before);
    if (after !== undefined) affected.add(after);
  }

  #add(frontend: string, candidate: Candidate): void {
    const present = this.#candidates.get(frontend);
    if (present === undefined) this.#candidates.set(frontend, candidate);
    else if (!Array.isArray(present)) this.#candidates.set(frontend, [present, candidate].sort(byPrecedence));
    else {
      const at = present.findIndex((other) => byPrecedence(candidate, other) < 0);
      present.splice(at < 0 ? present.length : at, 0, candidate);
    }
  }

  #remove(frontend: string, key: string): void {
    const present = this.#candidates.get(frontend);
    if (!Array.isArray(present)) {
      this.#candidates.delete(frontend);
      return;
    }
    const rest = present.filter((candidate) => candidate.key !== key);
    const [only] = rest;
    this.#candidates.set(frontend, rest.length === 1 && only !== undefined ? only : rest);
  }
}

const NOTHING: ReadonlyMap<string, FrontendKind> = new Map();

function kindsOf(port: ServicePort): Map<string, FrontendKind> {
  const declared = onePerDestination(port, declaredFrontends(port));
  return new Map(declared.map((frontend) => [frontendKey(port.protocol, frontend), frontend.kind]));
}

function byPrecedence(a: Candidate, b: Candidate): number {
  return comparePrecedence(a.kind, b.kind) || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
}
