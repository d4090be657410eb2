/**
 * TCP sockets on 127.0.0.1 and ::1 for node ports, in modes whose rules cannot translate loopback addresses (KEP-6032,
 * reference releases.md). A node port on a loopback address has one client, this node, so session affinity uses one
 * endpoint for all of its connections.
 */

import type { SyncInput } from "../../contract/backend.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { inCells } from "../../model/cells.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { ownedFrontends } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { type IpAddress, type IpFamily, joinHostPort } from "../../net/ip.ts";
import type { Destination, Relay, RelayObserver, RelayOptions, Relays } from "../../relay/relay.ts";

/** Upstream's. */
const DIAL_TIMEOUTS_MS: readonly number[] = [5_000];
/** A connection without a byte for so long is closed: it holds two descriptors. */
const IDLE_LIMIT_MS = 3_600_000;

/** Where the relay listens: the addresses of the name "localhost". */
export const LOCALHOST: Readonly<Record<IpFamily, IpAddress>> = {
  IPv4: "127.0.0.1" as IpAddress,
  IPv6: "::1" as IpAddress,
};

/** The metrics of one IP family. */
export interface LocalhostMetrics {
  readonly listeners: { set(count: number): void };
  readonly creationFailures: { inc(): void };
}

export interface LocalhostRelayOptions {
  readonly family: IpFamily;
  readonly nodeName: string;
  readonly relays: Relays;
  /** Each user's processes have a share of the connections. @default all are one user's */
  readonly userOf?: RelayOptions["userOf"];
  /** @default one hour */
  readonly idleLimitMs?: number;
  readonly metrics: LocalhostMetrics;
  readonly log: Logger;
  /** At least 0 and below 1. @default Math.random */
  readonly random?: () => number;
  /** @default performance.now */
  readonly nowMs?: () => number;
}

/** A wanted node port; it always has endpoints. */
interface Wanted {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** The node port that the relay serves for a service port; undefined if none. */
export function wantedOf(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  node: { readonly nodeName: string; readonly zone: string | undefined },
): Wanted | undefined {
  const isOwned = ownedFrontends(port).some(({ kind }) => kind === "node-port");
  if (!isOwned || port.protocol !== "TCP") return undefined;
  const routing = routeServicePort(port, endpoints, node);
  // Upstream's relay applies the Local policy to this node's own clients, too.
  const pool = port.externalPolicyLocal ? routing.local : routing.cluster;
  return pool.length === 0 ? undefined : { port, endpoints: pool };
}

export class LocalhostRelay {
  readonly #options: LocalhostRelayOptions;
  /** By the key of the service port. */
  readonly #wanted = new Map<string, Wanted>();
  /** By node port. */
  readonly #listeners = new Map<number, { readonly node: LocalhostNodePort; readonly relay: Relay }>();
  /** Likewise, why listening failed: logged once, while syncs come by the hundred. */
  readonly #refused = new Map<number, string>();

  constructor(options: LocalhostRelayOptions) {
    this.#options = options;
    options.metrics.listeners.set(0);
  }

  /** Applies what a sync has written. A failure to listen is logged once, counted, and retried with each sync. */
  async sync(input: Omit<SyncInput, "endpointCount" | "serviceCIDRs">): Promise<void> {
    const { services, endpoints, changedPorts, isFullSync, zone } = input;
    const { nodeName } = this.#options;
    const keys = isFullSync ? new Set([...services.keys(), ...this.#wanted.keys()]) : changedPorts;
    for (const key of keys) {
      const port = services.get(key);
      const wanted = port && wantedOf(port, endpoints.get(key) ?? [], { nodeName, zone });
      if (wanted === undefined) this.#wanted.delete(key);
      else this.#wanted.set(key, wanted);
    }
    const byPlace = new Map<number, Wanted>();
    for (const [key, wanted] of this.#wanted) {
      const place = wanted.port.nodePort;
      // The change of the previous owner may come with a later portion.
      if (!byPlace.has(place) || services.get(key) === wanted.port) byPlace.set(place, wanted);
    }
    for (const [place, { node, relay }] of this.#listeners) {
      if (byPlace.has(place)) continue;
      this.#options.log.v(2, "Removing localhost nodeport proxy", node.facts);
      this.#listeners.delete(place);
      await relay.drain(0);
    }
    for (const place of this.#refused.keys()) if (!byPlace.has(place)) this.#refused.delete(place);
    for (const [place, wanted] of byPlace) {
      const known = this.#listeners.get(place);
      if (known === undefined) await this.#listen(place, wanted);
      else known.node.update(wanted);
    }
    this.#options.metrics.listeners.set(this.#listeners.size);
  }

  /** Stops accepting and ends all connections. */
  async close(): Promise<void> {
    this.#wanted.clear();
    for (const { relay } of this.#listeners.values()) await relay.drain(0);
    this.#listeners.clear();
  }

  async #listen(port: number, wanted: Wanted): Promise<void> {
    const { family, relays, metrics, log, userOf, idleLimitMs = IDLE_LIMIT_MS } = this.#options;
    const node = new LocalhostNodePort(wanted, this.#options);
    const address = LOCALHOST[family];
    try {
      const relay = await relays.listen({
        protocol: "TCP",
        address,
        port,
        pick: () => node.pick(),
        observer: node,
        idleTimeoutMs: idleLimitMs,
        endsIdle: true,
        ...(userOf && { userOf }),
        dialTimeoutsMs: DIAL_TIMEOUTS_MS,
        endsQuietly: true,
      });
      this.#listeners.set(port, { node, relay });
      this.#refused.delete(port);
      log.v(4, "Created localhost nodeport proxy", { ...node.facts, endpoints: wanted.endpoints.length });
    } catch (error) {
      metrics.creationFailures.inc();
      const reason = `failed to listen on ${joinHostPort(address, port)}: ${messageOf(error)}`;
      if (this.#refused.get(port) === reason) return;
      this.#refused.set(port, reason);
      log.error("Failed to create localhost nodeport proxy", new Error(reason), {
        ...node.facts,
        service: wanted.port.name.text,
      });
    }
  }
}

/** Chooses among the endpoints of one node port. */
class LocalhostNodePort implements RelayObserver {
  readonly #log: Logger;
  readonly #random: () => number;
  readonly #nowMs: () => number;
  #wanted: Wanted;
  #pin: { readonly endpoint: string; readonly usedMs: number } | undefined;

  constructor(wanted: Wanted, { log, random, nowMs }: LocalhostRelayOptions) {
    this.#wanted = wanted;
    this.#log = log;
    this.#random = random ?? Math.random;
    this.#nowMs = nowMs ?? (() => performance.now());
  }

  get facts() {
    return { protocol: "TCP", port: this.#wanted.port.nodePort };
  }

  update(wanted: Wanted): void {
    if (timeoutMsOf(this.#wanted.port) !== timeoutMsOf(wanted.port)) this.#pin = undefined;
    this.#wanted = wanted;
  }

  pick(): Destination {
    const { port, endpoints } = this.#wanted;
    const timeoutMs = timeoutMsOf(port);
    const pin = timeoutMs === undefined ? undefined : this.#pin;
    const nowMs = this.#nowMs();
    const isValid = pin !== undefined && nowMs - pin.usedMs <= (timeoutMs ?? 0);
    const pinned = isValid ? endpoints.find(({ text }) => text === pin.endpoint) : undefined;
    const cells = inCells(endpoints);
    const endpoint = pinned ?? cells[Math.floor(this.#random() * cells.length)];
    if (endpoint === undefined) throw new Error("a node port without endpoints has no listener");
    if (timeoutMs !== undefined) this.#pin = { endpoint: endpoint.text, usedMs: nowMs };
    return { address: endpoint.ip, port: endpoint.port };
  }

  dialFailed({ address, port }: Destination, reason: string): void {
    const endpoint = joinHostPort(address, port);
    this.#log.v(4, "Failed to connect to backend", { err: reason, ...this.facts, endpoint });
  }

  opened(): void {}
  closed(): void {}
  bytes(): void {}
  refused(): void {}
}

/** The session affinity timeout; undefined without affinity. */
function timeoutMsOf({ sessionAffinity, stickyMaxAgeSeconds }: ServicePort): number | undefined {
  return sessionAffinity === "ClientIP" ? stickyMaxAgeSeconds * 1000 : undefined;
}
