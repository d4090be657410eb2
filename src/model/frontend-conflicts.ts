/** What is said of a frontend that a service port declares and another one has. */
import type { Logger } from "../logging/logger.ts";
import type { FrontendKind } from "./frontend.ts";
import type { FrontendConflict } from "./owned-services.ts";

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
