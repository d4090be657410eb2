/** The destinations of a service port that the maps can tell apart. */
import { type FrontendAddress, frontendKey, ownedFrontends } from "../../model/frontend.ts";
import { comparePrecedence } from "../../model/frontend-ownership.ts";
import type { ServicePort } from "../../model/service-port.ts";

/**
 * What a service port owns, each destination once. A Service may state one address twice, its cluster IP as an external IP too: the
 * maps hold one value for it, that of the kind with precedence, as in the rules underneath. Pure.
 */
export function destinationsOf(port: ServicePort): FrontendAddress[] {
  const owned = ownedFrontends(port);
  if (port.externalIPs.length === 0 && port.loadBalancerVIPs.length === 0) return owned;
  const destinations = new Map<string, FrontendAddress>();
  for (const frontend of owned) {
    const key = frontendKey(port.protocol, frontend);
    const known = destinations.get(key);
    if (known === undefined || comparePrecedence(frontend.kind, known.kind) < 0) destinations.set(key, frontend);
  }
  return [...destinations.values()];
}
