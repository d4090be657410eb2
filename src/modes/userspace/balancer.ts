/**
 * Picks endpoints: round robin per service port, by a hash of the client where the Service asks for it, and with ClientIP affinity the
 * one that the client had last.
 * Behaviour: reference userspace.md §1.7 without its two faults: a Service's own timeout always applies, and a Service
 * that is deleted and recreated has its endpoints at once.
 */

import type { Chooser } from "../../model/sparse-tables.ts";
import { type IpAddress, joinHostPort } from "../../net/ip.ts";
import type { Destination } from "../../relay/relay.ts";

interface BalancerDeps {
  /** At least 0 and below 1. */
  readonly random: () => number;
  /** Monotonic. */
  readonly nowMs: () => number;
}

/** ClientIP affinity; `undefined`: none. */
export type Affinity = { readonly timeoutSeconds: number } | undefined;

interface Sticky {
  readonly endpoint: Destination;
  readonly lastUsedMs: number;
}

interface PortState {
  /** `undefined` without affinity. */
  timeoutMs: number | undefined;
  /** By a hash of the client; `undefined`: they take turns. */
  choose: Chooser<Destination> | undefined;
  /** In the order of use; `next` is an index into it. */
  endpoints: readonly Destination[];
  next: number;
  /** By client, the longest idle one first. */
  readonly sticky: Map<IpAddress, Sticky>;
}

/** The API server's default for a Service with affinity: three hours. */
const DEFAULT_TIMEOUT_SECONDS = 10_800;

/** Beyond it, the longest idle client is forgotten: clients would take memory for hours. */
export const STICKY_CLIENT_LIMIT = 65_536;

/** Service ports are identified by any unique text. */
export class Balancer {
  readonly #deps: BalancerDeps;
  readonly #ports = new Map<string, PortState>();

  constructor(deps: BalancerDeps) {
    this.#deps = deps;
  }

  /**
   * Adds or changes a service port. The same endpoints in any order change nothing; otherwise all are shuffled. An endpoint
   * that stands several times gets as many turns. Clients keep their endpoint as long as it exists and the service port has affinity.
   */
  set(name: string, endpoints: readonly Destination[], affinity: Affinity, choose?: Chooser<Destination>): void {
    const known = this.#ports.get(name);
    const port = known ?? { timeoutMs: undefined, choose, endpoints: [], next: 0, sticky: new Map() };
    this.#ports.set(name, port);
    port.choose = choose;
    port.timeoutMs = affinity === undefined ? undefined : 1000 * (affinity.timeoutSeconds || DEFAULT_TIMEOUT_SECONDS);
    if (port.timeoutMs === undefined) port.sticky.clear();
    const wanted = Map.groupBy(endpoints, textOf);
    // Remaining endpoints stay the same objects, because clients refer to them.
    const turns = port.endpoints.filter((endpoint) => wanted.get(textOf(endpoint))?.pop() !== undefined);
    const added = [...wanted.values()].flat();
    if (turns.length === port.endpoints.length && added.length === 0) return;
    const kept = new Set(turns.map(textOf));
    port.endpoints = this.#shuffled([...turns, ...added]);
    port.next = 0;
    for (const [client, { endpoint }] of port.sticky) if (!kept.has(textOf(endpoint))) port.sticky.delete(client);
  }

  /** Forgets a service port and its clients. */
  delete(name: string): void {
    this.#ports.delete(name);
  }

  /**
   * Picks the endpoint for a client's new connection; `undefined` if there is none.
   *
   * @param isRetry the client's endpoint could not be reached: assign it the next one.
   */
  pick(name: string, client: Destination, isRetry: boolean): Destination | undefined {
    const port = this.#ports.get(name);
    if (port === undefined) return undefined;
    const { timeoutMs, sticky, choose } = port;
    const chosen = () => (choose === undefined || isRetry ? nextOf(port) : choose(client));
    if (timeoutMs === undefined) return chosen();
    const nowMs = this.#deps.nowMs();
    const last = isRetry ? undefined : sticky.get(client.address);
    const isValid = last !== undefined && nowMs - last.lastUsedMs < timeoutMs;
    const endpoint = isValid ? last.endpoint : chosen();
    if (endpoint === undefined) return undefined;
    sticky.delete(client.address);
    sticky.set(client.address, { endpoint, lastUsedMs: nowMs });
    if (sticky.size > STICKY_CLIENT_LIMIT) forgetOldest(sticky);
    return endpoint;
  }

  /** Forgets clients that were idle for longer than the timeout. */
  purgeExpired(): void {
    const nowMs = this.#deps.nowMs();
    for (const { sticky, timeoutMs } of this.#ports.values()) {
      for (const [client, { lastUsedMs }] of sticky) {
        if (timeoutMs !== undefined && nowMs - lastUsedMs < timeoutMs) break;
        sticky.delete(client);
      }
    }
  }

  /** The number of remembered clients of all service ports. */
  get stickyClients(): number {
    let count = 0;
    for (const { sticky } of this.#ports.values()) count += sticky.size;
    return count;
  }

  /** The Fisher–Yates shuffle. */
  #shuffled(endpoints: Destination[]): readonly Destination[] {
    for (let last = endpoints.length - 1; last > 0; last--) {
      const other = Math.floor(this.#deps.random() * (last + 1));
      const [a, b] = [endpoints[last], endpoints[other]];
      if (a === undefined || b === undefined) continue;
      endpoints[last] = b;
      endpoints[other] = a;
    }
    return endpoints;
  }
}

function textOf({ address, port }: Destination): string {
  return joinHostPort(address, port);
}

function nextOf(port: PortState): Destination | undefined {
  const endpoint = port.endpoints[port.next];
  port.next = (port.next + 1) % Math.max(1, port.endpoints.length);
  return endpoint;
}

function forgetOldest(sticky: Map<IpAddress, Sticky>): void {
  const oldest = sticky.keys().next();
  if (!oldest.done) sticky.delete(oldest.value);
}
