/** The Services and endpoints of a whole cluster, read at once, as one family of a node must serve them. */
import type { ClusterRecords } from "../../model/objects.ts";
import type { FrontendConflict } from "../../model/owned-services.ts";
import { ProxyState, type ProxyStateOptions } from "../../model/proxy-state.ts";

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
