/** The Services and endpoints of a whole cluster, read at once, as one family of a node must serve them. */
import type { ClusterRecords } from "../../model/objects.ts";
import type { FrontendConflict } from "../../model/owned-services.ts";
import { ProxyState, type ProxyStateOptions, type ServedState } from "../../model/proxy-state.ts";
import type { StandingPort, WithStanding } from "../../model/standing-ports.ts";

/** The times of changes do not matter here, so the clock stands still. */
export function offlineState(
  cluster: Pick<ClusterRecords, "services" | "endpointSlices" | "leftOut">,
  options: Omit<ProxyStateOptions, "now">,
): {
  readonly state: ProxyState;
  /** Frontends that several service ports declare. */
  readonly conflicts: readonly FrontendConflict[];
} {
  const state = new ProxyState({ ...options, now: () => 0 });
  for (const object of cluster.services) state.onService({ kind: "add", object });
  for (const object of cluster.endpointSlices) {
    if (object.addressType === options.family) state.onEndpointSlice({ kind: "add", object });
  }
  if (cluster.leftOut?.node === options.nodeName) state.leaveOut(cluster.leftOut.ports);
  return { state, conflicts: state.applyChanges().conflicts };
}

/** What the daemon of the node keeps as it was. */
export function standingOn({ standing }: WithStanding, node: string, family: string): readonly StandingPort[] {
  return standing?.node === node ? standing.ports.filter((one) => one.family === family) : [];
}

/** The state with these service ports as they are in force. */
export function withStanding(state: ServedState, standing: readonly StandingPort[]): ServedState {
  if (standing.length === 0) return state;
  const [services, endpoints] = [new Map(state.services), new Map(state.endpoints)];
  for (const { servicePort, inForce } of standing) {
    if (inForce === undefined) services.delete(servicePort);
    else services.set(servicePort, inForce.port);
    if (inForce === undefined || inForce.endpoints.length === 0) endpoints.delete(servicePort);
    else endpoints.set(servicePort, inForce.endpoints);
  }
  const { endpointCount, localReadyCounts } = state;
  return { services, endpoints, endpointCount, localReadyCounts };
}
