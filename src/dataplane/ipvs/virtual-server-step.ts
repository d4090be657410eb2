/** What takes one virtual server from what the kernel has to what is wanted: reference ipvs.md §3, §4. Pure. */
import type { IpvsOperation, RealServerState, VirtualServer } from "../../kernel/ipvs/ipvs.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { PlannedVirtualServer } from "./plan-service-port.ts";

/** A virtual server as the kernel has it. */
export interface PresentVirtualServer {
  readonly virtualServer: VirtualServer;
  readonly realServers: readonly RealServerState[];
}

export interface VirtualServerStep {
  readonly virtualServer: VirtualServer;
  /** In the order in which they are to be carried out; none when only `draining` is to be noted. */
  readonly operations: readonly IpvsOperation[];
  /**
   * Real servers that are not wanted but still have connections; their weight will be 0. Undefined when the virtual server
   * goes.
   */
  readonly draining: readonly RealServerState[] | undefined;
}

/** Weight of every real server that takes connections. */
export const WEIGHT = 1;

/**
 * @param wanted undefined deletes the virtual server; its real servers go with it, at once.
 * @param present undefined when there is none.
 * @returns undefined when there is nothing to do.
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
  for (const { ip: address, port, text } of wanted.endpoints) {
    const there = left.get(text);
    left.delete(text);
    if (there?.weight === WEIGHT) continue;
    // A new weight takes back a removal that was waiting for connections to end, and cuts none of them.
    const kind = there === undefined ? "add-real-server" : "update-real-server";
    operations.push({ kind, virtualServer, realServer: { address, port, weight: WEIGHT } });
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
 * Whether a real server must stay until its connections have ended: ipvs.md §5. Those of UDP and SCTP do not
 * count: the kernel ends them with the next packet (sysctl `expire_nodest_conn`).
 */
export function mustDrain({ protocol }: Pick<VirtualServer, "protocol">, server: RealServerState): boolean {
  return protocol === "TCP" && server.activeConnections + server.inactiveConnections > 0;
}

/** `10.0.0.1:80`: the same as the text of the endpoint. */
export function realServerText({ address, port }: Pick<RealServerState, "address" | "port">): string {
  return joinHostPort(address, port);
}

function equalVirtualServers(a: VirtualServer, b: VirtualServer): boolean {
  return a.scheduler === b.scheduler && a.flags === b.flags && a.timeoutSeconds === b.timeoutSeconds;
}
