/**
 * Limits connections to a server, in total and per peer. A new connection replaces an idle one: of its own peer if that
 * is at its limit, otherwise of the peer that has the most. So a client at its limit keeps no other client out, not
 * even a probe from its own address.
 */
import { shareOfServers } from "../../../kernel/share-of-servers.ts";

/** How valuable a connection is; the least valuable goes first. */
export type Worth =
  /** has not sent a request yet */
  | 0
  /** has been answered, and is kept for the next request */
  | 1
  /** its answer is complete, but the reader does not take it */
  | 2
  /** is being answered: never closed in favour of another one */
  | 3;

export interface GatedConnection {
  /** The client's address. */
  readonly peer: string;
  worth(): Worth;
  /** Ends it at once; {@link ConnectionGate.leave} may be called from within. */
  close(): void;
}

export interface ConnectionLimits {
  readonly total: number;
  readonly perPeer: number;
}

interface ConnectionGateOptions extends ConnectionLimits {
  /** Called when a connection is closed in favour of another one, or refused. */
  onFull?(peer: string): void;
}

const BUSY: Worth = 3;

export class ConnectionGate {
  readonly #options: ConnectionGateOptions;
  /** By peer; the least recently active first. */
  readonly #peers = new Map<string, Set<GatedConnection>>();
  #size = 0;

  constructor(options: ConnectionGateOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#size;
  }

  /** Admits a connection, which may close another one. @returns whether it is admitted; if not, close it. */
  enter(connection: GatedConnection): boolean {
    const { total, perPeer, onFull } = this.#options;
    const own = this.#peers.get(connection.peer);
    const isPeerFull = own !== undefined && own.size >= perPeer;
    if (isPeerFull || this.#size >= total) {
      onFull?.(connection.peer);
      const victim = isPeerFull ? cheapest(own) : this.#cheapestOfTheLargest();
      if (victim === undefined) return false;
      this.leave(victim);
      victim.close();
    }
    const connections = this.#peers.get(connection.peer) ?? new Set();
    this.#peers.set(connection.peer, connections.add(connection));
    this.#size += 1;
    return true;
  }

  /** Marks activity: among its equals, it is the last to go. */
  touch(connection: GatedConnection): void {
    const connections = this.#peers.get(connection.peer);
    if (connections?.delete(connection)) connections.add(connection);
  }

  /** Removes a connection. Safe to call twice. */
  leave(connection: GatedConnection): void {
    const connections = this.#peers.get(connection.peer);
    if (connections === undefined || !connections.delete(connection)) return;
    this.#size -= 1;
    if (connections.size === 0) this.#peers.delete(connection.peer);
  }

  #cheapestOfTheLargest(): GatedConnection | undefined {
    const bySize = [...this.#peers.values()].sort((one, other) => other.size - one.size);
    for (const connections of bySize) {
      const found = cheapest(connections);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

function cheapest(connections: Iterable<GatedConnection>): GatedConnection | undefined {
  let found: GatedConnection | undefined;
  let least: Worth = BUSY;
  for (const connection of connections) {
    const worth = connection.worth();
    if (worth === 0) return connection;
    if (worth < least) [found, least] = [connection, worth];
  }
  return found;
}

export interface ServerLimits {
  readonly health: ConnectionLimits;
  readonly metrics: ConnectionLimits;
  /** All health-check node ports of both families together. */
  readonly serviceHealth: ConnectionLimits;
}

/** How the file limit is shared out: a sixth for each of the two ports, the rest for the health-check node ports. */
export function serverLimits(fileLimit: number): ServerLimits {
  const share = shareOfServers(fileLimit);
  const port = limits(Math.max(4, Math.floor(share / 6)));
  return { health: port, metrics: port, serviceHealth: limits(Math.max(8, share - 2 * port.total)) };
}

/** At most a quarter of them for one peer. */
function limits(total: number): ConnectionLimits {
  return { total, perPeer: Math.max(2, Math.floor(total / 4)) };
}
