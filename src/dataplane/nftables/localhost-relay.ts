/**
 * Sockets on 127.0.0.1 and ::1 for node ports, in modes whose rules cannot translate loopback addresses: upstream's
 * form (KEP-6032, reference releases.md), or an extended one. A node port on a loopback address has one client, this
 * node, so session affinity uses one endpoint for all of its connections.
 */
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { type Endpoint, keepsFlows } from "../../model/endpoint.ts";
import { ownedFrontends } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { type IpAddress, type IpFamily, joinHostPort } from "../../net/ip.ts";
import {
  type Destination,
  endSessionsTo,
  type Relay,
  type RelayObserver,
  type RelayProtocol,
  type Relays,
} from "../../relay/relay.ts";
import type { SyncInput } from "../../sync/backend.ts";
import { RELAY_DRAIN_MS } from "../stop-policy.ts";

/** How connections are carried. */
export interface LocalhostForm {
  readonly protocols: readonly RelayProtocol[];
  /** Whether the Local policy applies to this node's own clients: only upstream's relay does that. */
  readonly obeysLocalPolicy: boolean;
  /** One timeout for each attempt. */
  readonly dialTimeoutsMs: readonly number[];
  /** How long connections may outlast their service port, or a stop. 0: they are closed at once, without a reset. */
  readonly drainTimeoutMs: number;
}

export const UPSTREAM_FORM: LocalhostForm = {
  protocols: ["TCP"],
  obeysLocalPolicy: true,
  dialTimeoutsMs: [5_000],
  drainTimeoutMs: 0,
};

export const EXTENDED_FORM: LocalhostForm = {
  protocols: ["TCP", "UDP"],
  obeysLocalPolicy: false,
  // In sum upstream's timeout; a lost SYN is retransmitted after a second.
  dialTimeoutsMs: [2_000, 3_000],
  drainTimeoutMs: RELAY_DRAIN_MS,
};

/** Connection tracking's timeout for a UDP flow that has been answered. */
const UDP_IDLE_TIMEOUT_MS = 120_000;

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
  readonly form: LocalhostForm;
  readonly relays: Relays;
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
  readonly protocol: RelayProtocol;
  /** The endpoints for new connections. */
  readonly endpoints: readonly Endpoint[];
  /** The endpoints at which existing connections may stay. */
  readonly answering: readonly Endpoint[];
}

interface Listener {
  readonly node: LocalhostNodePort;
  readonly relay: Relay;
}

/** The node port that the relay serves for a service port; undefined if none. */
export function wantedOf(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  form: LocalhostForm,
  node: { readonly nodeName: string; readonly zone: string | undefined },
): Wanted | undefined {
  const protocol = form.protocols.find((relayed) => relayed === port.protocol);
  const isOwned = ownedFrontends(port).some(({ kind }) => kind === "node-port");
  if (!isOwned || protocol === undefined) return undefined;
  const routing = routeServicePort(port, endpoints, node);
  const pool = form.obeysLocalPolicy && port.externalPolicyLocal ? routing.local : routing.cluster;
  const answering = endpoints.filter(keepsFlows);
  return pool.length === 0 ? undefined : { port, protocol, endpoints: pool, answering };
}

export class LocalhostRelay {
  readonly #options: LocalhostRelayOptions;
  /** By the key of the service port. */
  readonly #wanted = new Map<string, Wanted>();
  /** By protocol and node port. */
  readonly #listeners = new Map<string, Listener>();
  /** Likewise, why listening failed: logged once, while syncs come by the hundred. */
  readonly #refused = new Map<string, string>();
  /** Closed listeners whose connections are still open. */
  readonly #draining = new Set<Promise<void>>();

  constructor(options: LocalhostRelayOptions) {
    this.#options = options;
    options.metrics.listeners.set(0);
  }

  /** Applies what a sync has written. A failure to listen is logged once, counted, and retried with each sync. */
  async sync(input: Omit<SyncInput, "endpointCount" | "serviceCIDRs">): Promise<void> {
    const { services, changedPorts, isFullSync } = input;
    const keys = isFullSync ? new Set([...services.keys(), ...this.#wanted.keys()]) : changedPorts;
    for (const key of keys) {
      const wanted = this.#wantedOf(services.get(key), input);
      if (wanted === undefined) this.#wanted.delete(key);
      else this.#wanted.set(key, wanted);
    }
    const byPlace = new Map<string, Wanted>();
    for (const [key, wanted] of this.#wanted) {
      const place = `${wanted.protocol}/${wanted.port.nodePort}`;
      // The change of the previous owner may come with a later portion.
      if (!byPlace.has(place) || services.get(key) === wanted.port) byPlace.set(place, wanted);
    }
    for (const [place, { node, relay }] of this.#listeners) {
      if (byPlace.has(place)) continue;
      this.#options.log.v(2, "Removing localhost nodeport proxy", node.facts);
      this.#listeners.delete(place);
      await this.#end(relay);
    }
    for (const place of this.#refused.keys()) if (!byPlace.has(place)) this.#refused.delete(place);
    for (const [place, wanted] of byPlace) {
      const known = this.#listeners.get(place);
      if (known === undefined) await this.#listen(place, wanted);
      else for (const gone of known.node.update(wanted)) endSessionsTo(known.relay, gone);
    }
    this.#options.metrics.listeners.set(this.#listeners.size);
  }

  /** Stops accepting; resolves when the last connection has ended, or the drain timeout has passed. */
  async close(): Promise<void> {
    this.#wanted.clear();
    for (const { relay } of this.#listeners.values()) await this.#end(relay);
    this.#listeners.clear();
    await Promise.all(this.#draining);
  }

  #wantedOf(
    port: ServicePort | undefined,
    { endpoints, zone }: Pick<SyncInput, "endpoints" | "zone">,
  ): Wanted | undefined {
    const { form, nodeName } = this.#options;
    return port && wantedOf(port, endpoints.get(port.name.key) ?? [], form, { nodeName, zone });
  }

  async #listen(place: string, wanted: Wanted): Promise<void> {
    const { family, form, relays, metrics, log } = this.#options;
    const node = new LocalhostNodePort(wanted, this.#options);
    const address = LOCALHOST[family];
    const port = wanted.port.nodePort;
    try {
      const relay = await relays.listen({
        protocol: wanted.protocol,
        address,
        port,
        pick: (_client, attempt) => node.pick(attempt),
        observer: node,
        idleTimeoutMs: UDP_IDLE_TIMEOUT_MS,
        dialTimeoutsMs: form.dialTimeoutsMs,
        endsQuietly: form.drainTimeoutMs === 0,
      });
      this.#listeners.set(place, { node, relay });
      this.#refused.delete(place);
      log.v(4, "Created localhost nodeport proxy", { ...node.facts, endpoints: wanted.endpoints.length });
    } catch (error) {
      metrics.creationFailures.inc();
      const reason = `failed to listen on ${joinHostPort(address, port)}: ${messageOf(error)}`;
      if (this.#refused.get(place) === reason) return;
      this.#refused.set(place, reason);
      log.error("Failed to create localhost nodeport proxy", new Error(reason), {
        ...node.facts,
        service: wanted.port.name.text,
      });
    }
  }

  async #end(relay: Relay): Promise<void> {
    const { drainTimeoutMs } = this.#options.form;
    const drained = relay.drain(drainTimeoutMs).finally(() => this.#draining.delete(drained));
    this.#draining.add(drained);
    // Closing frees the port; connections may last until the drain timeout.
    await relay.close();
    if (drainTimeoutMs === 0) await drained;
  }
}

/** Chooses among the endpoints of one node port. */
class LocalhostNodePort implements RelayObserver {
  readonly #log: Logger;
  readonly #random: () => number;
  readonly #nowMs: () => number;
  #wanted: Wanted;
  #pin: { readonly endpoint: string; readonly usedMs: number } | undefined;
  /** The endpoint that the last failed dial was for. */
  #failed: string | undefined;

  constructor(wanted: Wanted, { log, random, nowMs }: LocalhostRelayOptions) {
    this.#wanted = wanted;
    this.#log = log;
    this.#random = random ?? Math.random;
    this.#nowMs = nowMs ?? (() => performance.now());
  }

  get facts() {
    return { protocol: this.#wanted.protocol, port: this.#wanted.port.nodePort };
  }

  /** @returns the endpoints that connections must leave. */
  update(wanted: Wanted): Destination[] {
    const before = this.#wanted;
    this.#wanted = wanted;
    if (timeoutMsOf(before.port) !== timeoutMsOf(wanted.port)) this.#pin = undefined;
    const texts = new Set(wanted.answering.map(({ text }) => text));
    return before.answering.filter(({ text }) => !texts.has(text)).map(destinationOf);
  }

  pick(attempt: number): Destination {
    const { port, endpoints } = this.#wanted;
    const timeoutMs = timeoutMsOf(port);
    const pin = attempt === 0 && timeoutMs !== undefined ? this.#pin : undefined;
    const nowMs = this.#nowMs();
    const isValid = pin !== undefined && nowMs - pin.usedMs <= (timeoutMs ?? 0);
    const endpoint = (isValid && endpoints.find(({ text }) => text === pin.endpoint)) || this.#anyOf(attempt);
    if (timeoutMs !== undefined) this.#pin = { endpoint: endpoint.text, usedMs: nowMs };
    return destinationOf(endpoint);
  }

  #anyOf(attempt: number): Endpoint {
    const { endpoints } = this.#wanted;
    const others = attempt === 0 ? [] : endpoints.filter(({ text }) => text !== this.#failed);
    const pool = others.length > 0 ? others : endpoints;
    const endpoint = pool[Math.floor(this.#random() * pool.length)];
    if (endpoint === undefined) throw new Error("a node port without endpoints has no listener");
    return endpoint;
  }

  dialFailed({ address, port }: Destination, reason: string): void {
    this.#failed = joinHostPort(address, port);
    this.#log.v(4, "Failed to connect to backend", { err: reason, ...this.facts, endpoint: this.#failed });
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

function destinationOf({ ip, port }: Endpoint): Destination {
  return { address: ip, port };
}
