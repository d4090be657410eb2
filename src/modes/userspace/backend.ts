/**
 * The userspace mode for one address family: this process accepts the connections and carries their bytes. This file
 * applies changes of the model to the balancer and to the listeners (`host.ts`), which lead clients to the proxy.
 * Reference userspace.md §1.
 */

import type { Clock } from "../../async/clock.ts";
import { isDeepStrictEqual } from "../../async/node-util.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type {
  Backend,
  LedConnections,
  LostRules,
  SyncFailure,
  SyncInput,
  SyncOutcome,
} from "../../contract/backend.ts";
import type { Logger } from "../../logging/logger.ts";
import { inCells } from "../../model/cells.ts";
import { type Endpoint, keepsFlows } from "../../model/endpoint.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import {
  routeServicePort,
  type ServicePortRouting,
  usesClusterEndpoints,
  usesLocalEndpoints,
} from "../../model/service-port-routing.ts";
import { type Chooser, chooserOf } from "../../model/sparse-tables.ts";
import type { Flow } from "../../net/flow.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { Destination } from "../../relay/relay.ts";
import { RefusedPorts } from "../shared/refused-ports.ts";
import { UNKNOWN_ADDRESSES } from "../shared/unknown-addresses.ts";
import type { Affinity, Balancer } from "./balancer.ts";
import type { Listeners, WantedPort } from "./host.ts";
import { LANES, type Lane, laneKey, type Portal, portalsOf } from "./portals.ts";
import { isRelayed, type ServiceRelays } from "./service-relays.ts";

/** Upstream's message. */
const SCTP_REFUSED = "SCTP is not supported for user space proxy";

interface UserspaceBackendOptions {
  readonly family: IpFamily;
  /** Empty if unknown: then no endpoint is local. */
  readonly nodeName: string;
  readonly balancer: Balancer;
  readonly sockets: ServiceRelays;
  readonly listeners: Listeners;
  readonly nodePortAddresses: NodePortAddresses;
  /** Of the hashes that choose endpoints. */
  readonly hashSeed: number;
  /** The addresses of this host, of this family. Called on every sync. */
  readonly hostAddresses: () => Promise<readonly IpAddress[]>;
  /** Calls back when they change, until the signal aborts. Rejects if they cannot be watched. */
  readonly watchHostAddresses: (onChange: () => void, signal: AbortSignal) => Promise<void>;
  /** The time between two checks of the rules. */
  readonly checkIntervalMs: number;
  /** How long connections may go on after a stop. */
  readonly drainTimeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

export class UserspaceBackend implements Backend {
  readonly mode = "userspace";
  readonly endsFlows = true;
  readonly family: IpFamily;
  readonly #options: UserspaceBackendOptions;
  /** The portals last requested from the listeners, by key of the service port; empty for one that cannot be served. */
  readonly #asked = new Map<string, readonly Portal[]>();
  #hostAddresses: ReadonlySet<IpAddress> = new Set();
  /** Whether the last read succeeded. */
  #knowsAddresses = true;
  readonly #refused = new RefusedPorts();
  /** Whether the listeners are as requested, except for what was rejected. */
  #isKnown = false;
  #requestSync: () => void = () => {};

  constructor(options: UserspaceBackendOptions) {
    this.#options = options;
    this.family = options.family;
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const { listeners } = this.#options;
    const isSameHost = await this.#readHostAddresses();
    const isFull = input.isFullSync || !isSameHost || !this.#isKnown;
    const keys = isFull ? [...input.services.keys(), ...this.#asked.keys()] : input.changedPorts;
    // If this sync ends early, some changes are recorded here but not applied.
    this.#isKnown = false;
    const onNode = nodePortIPs(this.#options.nodePortAddresses, this.#hostAddresses);
    const wanted = new Map<string, WantedPort | undefined>();
    for (const key of new Set([...keys, ...this.#refused.keys()])) {
      const port = input.services.get(key);
      const routing = this.#routingOf(port, input);
      this.#updateBalancer(key, port, routing, input.endpoints.get(key) ?? []);
      const before = this.#asked.get(key);
      const portals = port === undefined || routing === undefined ? undefined : portalsOf(port, routing, onNode);
      if (port !== undefined) {
        if (routing === undefined && before === undefined) this.#tellUnserved(port);
        this.#asked.set(key, portals ?? []);
      }
      // All other changes concern only the balancer.
      if (isFull || this.#refused.has(key) || !isDeepStrictEqual(portals, before)) {
        wanted.set(key, port === undefined || portals === undefined ? undefined : { port, portals });
      }
      if (isTurnDue()) await giveTurn(signal);
    }
    const failures = new Map<string, SyncFailure>();
    const fail = (key: string, reason: string): void => {
      const subject = input.services.get(key)?.name.text ?? key;
      const known = failures.get(key)?.reason;
      failures.set(key, { subject, reason: known === undefined ? reason : `${known}; ${reason}` });
    };
    await listeners.apply({ isFull, wanted, hostAddresses: this.#hostAddresses, fail }, signal);
    for (const key of wanted.keys()) if (!input.services.has(key)) this.#asked.delete(key);
    this.#refused.replace(failures);
    this.#isKnown = true;
    const failed = [...this.#refused.values(), ...(this.#knowsAddresses ? [] : [UNKNOWN_ADDRESSES])];
    return { failures: failed, written: listeners.written };
  }

  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    this.#requestSync = requestSync;
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    try {
      await Promise.all([
        this.#checkRegularly(onLost, either),
        this.#options.watchHostAddresses(() => requestSync(), either),
      ]);
    } finally {
      stop.abort();
    }
  }

  openConnections(key: string): ReadonlyMap<string, number> {
    return this.#options.sockets.openOf(key);
  }

  readonly led: LedConnections = {
    read: async (visit) => {
      for (const { flow } of this.#options.sockets.carried()) visit(flow);
    },
    end: async (flows) => {
      const wanted = new Map(flows.map((flow) => [flow.socket, flow]));
      const ended = new Set<Flow>();
      for (const { flow, session } of this.#options.sockets.carried()) {
        const known = wanted.get(flow.socket);
        if (known === undefined || known.replySourceIP !== flow.replySourceIP) continue;
        session.cut();
        ended.add(known);
      }
      return ended;
    },
  };

  /** Requests a sync before the next one is due. */
  retry(): void {
    this.#requestSync();
  }

  async close(): Promise<void> {
    const { listeners, sockets, drainTimeoutMs, log } = this.#options;
    await listeners.stopAccepting();
    const { connections } = sockets;
    if (connections > 0) log.info("Waiting for connections to end", { connections, limitMs: drainTimeoutMs });
    await sockets.drain(drainTimeoutMs);
    await listeners.close();
  }

  async #checkRegularly(onLost: () => void, signal: AbortSignal): Promise<void> {
    const { balancer, listeners, checkIntervalMs, clock, log } = this.#options;
    for (;;) {
      await clock.sleep(checkIntervalMs, signal);
      if (signal.aborted) return;
      balancer.purgeExpired();
      if ((await listeners.isIntact?.()) !== "absent") continue;
      log.info("Another program changed the rules or addresses that lead clients to the proxy; restoring them");
      onLost();
    }
  }

  /** @returns whether they are unchanged, or could not be read. */
  async #readHostAddresses(): Promise<boolean> {
    const known = this.#hostAddresses;
    try {
      this.#hostAddresses = new Set(await this.#options.hostAddresses());
      this.#knowsAddresses = true;
    } catch (error) {
      this.#knowsAddresses = false;
      this.#options.log.error("Failed to read the addresses of this host; using the last known ones", error);
    }
    return known.size === this.#hostAddresses.size && [...known].every((ip) => this.#hostAddresses.has(ip));
  }

  /** Undefined for service ports that are not served. */
  #routingOf(port: ServicePort | undefined, { endpoints, zone }: SyncInput): ServicePortRouting | undefined {
    if (port === undefined || !isRelayed(port.name)) return undefined;
    return routeServicePort(port, endpoints.get(port.name.key) ?? [], { nodeName: this.#options.nodeName, zone });
  }

  #updateBalancer(
    key: string,
    port: ServicePort | undefined,
    routing: ServicePortRouting | undefined,
    endpoints: readonly Endpoint[],
  ): void {
    const { balancer, sockets } = this.#options;
    for (const lane of LANES) {
      const name = laneKey(key, lane);
      const isUsed = port !== undefined && routing !== undefined && (lane === "cluster" || this.#leadsLocally(port));
      if (isUsed) this.#balance(name, port, endpointsIn(lane, port, routing));
      else balancer.delete(name);
    }
    // Endpoints that only get no new clients keep their present ones.
    sockets.endSessionsBut(key, new Set(endpoints.filter(keepsFlows).map(({ text }) => text)));
  }

  #balance(name: string, port: ServicePort, endpoints: readonly Endpoint[]): void {
    const { balancer, hashSeed } = this.#options;
    const choose = port.balancing && chooserOf(port.balancing, endpoints, hashSeed);
    const chosen: Chooser<Destination> | undefined = choose && ((client) => destinationOf(choose(client)));
    balancer.set(name, inCells(endpoints).map(destinationOf), affinityOf(port), chosen);
  }

  /** Includes rules from before a change of policy, which stay in force if the kernel rejects the new ones. */
  #leadsLocally(port: ServicePort): boolean {
    const { key } = port.name;
    const hasLocal = (portals: readonly Portal[] = []): boolean => portals.some(({ policy }) => policy === "Local");
    return usesLocalEndpoints(port) || this.#refused.has(key) || hasLocal(this.#asked.get(key));
  }

  #tellUnserved({ name }: ServicePort): void {
    this.#options.log.error("A service port is left out", new Error(SCTP_REFUSED), {
      service: name.text,
      cannot: "SCTP service ports",
    });
  }
}

/** If the policies no longer use this lane, clients that still reach it get the endpoints of the other one. */
function endpointsIn(lane: Lane, port: ServicePort, { cluster, local }: ServicePortRouting): readonly Endpoint[] {
  if (lane === "local") return usesLocalEndpoints(port) ? local : cluster;
  return usesClusterEndpoints(port) ? cluster : local;
}

function affinityOf({ sessionAffinity, stickyMaxAgeSeconds }: ServicePort): Affinity {
  return sessionAffinity === "ClientIP" ? { timeoutSeconds: stickyMaxAgeSeconds } : undefined;
}

function destinationOf({ ip, port }: Endpoint): Destination {
  return { address: ip, port };
}
