/** The operations that reconcile one virtual server: reference ipvs.md §3, §4. */

import { cellsOf, undrained } from "../../model/cells.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { IpvsOperation, RealServer, RealServerState, VirtualServer } from "./kernel/ipvs.ts";
import type { PlannedVirtualServer } from "./plan-service-port.ts";

/** A virtual server as the kernel has it. */
export interface PresentVirtualServer {
  readonly virtualServer: VirtualServer;
  readonly realServers: readonly RealServerState[];
}

export interface VirtualServerStep {
  readonly virtualServer: VirtualServer;
  /** In the order of execution; empty if only `draining` changes. */
  readonly operations: readonly IpvsOperation[];
  /**
   * Real servers that are not wanted but still have connections; their weight will be 0. Undefined if the virtual
   * server is deleted.
   */
  readonly draining: readonly RealServerState[] | undefined;
}

/** The real servers of a virtual server, in its order: cells are weights, and the drained endpoints at its end have weight 0. */
export function realServersOf({ endpoints }: Pick<PlannedVirtualServer, "endpoints">): readonly RealServer[] {
  const cells = cellsOf(undrained(endpoints));
  return endpoints.map(({ ip: address, port }, index) => ({ address, port, weight: cells[index] ?? 0 }));
}

/**
 * @param wanted undefined: delete the virtual server, at once and with its real servers.
 * @param present undefined if it does not exist.
 * @returns undefined if there is nothing to do.
 */
export function virtualServerStep(
  wanted: PlannedVirtualServer | undefined,
  present: PresentVirtualServer | undefined,
): VirtualServerStep | undefined {
  if (wanted === undefined) {
    if (present === undefined) return undefined;
    const { virtualServer } = present;
    return { virtualServer, operations: [{ kind: "delete-virtual-server", virtualServer }], draining: undefined };
  }
  const { virtualServer } = wanted;
  const operations: IpvsOperation[] = [];
  if (present === undefined) operations.push({ kind: "add-virtual-server", virtualServer });
  else if (!equalVirtualServers(present.virtualServer, virtualServer)) {
    operations.push({ kind: "update-virtual-server", virtualServer });
  }
  const left = new Map(present?.realServers.map((server) => [realServerText(server), server]));
  for (const realServer of realServersOf(wanted)) {
    const text = realServerText(realServer);
    const there = left.get(text);
    left.delete(text);
    if (there?.weight === realServer.weight) continue;
    // A new weight cancels a pending removal and breaks no connections.
    const kind = there === undefined ? "add-real-server" : "update-real-server";
    operations.push({ kind, virtualServer, realServer });
  }
  const draining: RealServerState[] = [];
  for (const server of left.values()) {
    if (!mustDrain(virtualServer, server)) {
      operations.push({ kind: "delete-real-server", virtualServer, realServer: server });
      continue;
    }
    draining.push(server);
    if (server.weight === 0) continue;
    const { address, port } = server;
    operations.push({ kind: "update-real-server", virtualServer, realServer: { address, port, weight: 0 } });
  }
  return { virtualServer, operations, draining };
}

/**
 * Whether a real server must stay until its connections have ended: ipvs.md §5. UDP and SCTP do not count: the kernel
 * ends their connections with the next packet (sysctl `expire_nodest_conn`).
 */
export function mustDrain({ protocol }: Pick<VirtualServer, "protocol">, server: RealServerState): boolean {
  return protocol === "TCP" && server.activeConnections + server.inactiveConnections > 0;
}

/** `10.0.0.1:80`, like the text of an endpoint. */
export function realServerText({ address, port }: Pick<RealServerState, "address" | "port">): string {
  return joinHostPort(address, port);
}

function equalVirtualServers(a: VirtualServer, b: VirtualServer): boolean {
  return a.scheduler === b.scheduler && a.flags === b.flags && a.timeoutSeconds === b.timeoutSeconds;
}
