/**
 * How many connections each of the daemon's servers may hold: enough for scrapers, kubelets and load balancers, and few
 * enough that the kernel's descriptors last for what the program is there for (netlink, the API server, tools).
 */
import { shareOfServers } from "../../kernel/share-of-servers.ts";
import type { ConnectionLimits } from "./connection-gate.ts";

export interface ServerLimits {
  readonly health: ConnectionLimits;
  readonly metrics: ConnectionLimits;
  /** All health-check node ports of both families together. */
  readonly serviceHealth: ConnectionLimits;
}

/** How that is shared out: a sixth for each of the two ports, the rest for the health-check node ports. Pure. */
export function serverLimits(fileLimit: number): ServerLimits {
  const share = shareOfServers(fileLimit);
  const port = limits(Math.max(4, Math.floor(share / 6)));
  return { health: port, metrics: port, serviceHealth: limits(Math.max(8, share - 2 * port.total)) };
}

/** A quarter of them at most for one peer. */
function limits(total: number): ConnectionLimits {
  return { total, perPeer: Math.max(2, Math.floor(total / 4)) };
}
