/**
 * The sockets of service ports: each carries its clients to the endpoint that the balancer picks, and is remembered
 * until its last connection has ended, so that a stop can cut the remaining ones.
 */

import type { LedFlow } from "../../kernel/conntrack/conntrack.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { type Cidr, cidrContains, type IpAddress, joinHostPort } from "../../net/ip.ts";
import type {
  Destination,
  PickDestination,
  Relay,
  RelayObserver,
  RelayProtocol,
  RelaySession,
  Relays,
} from "../../relay/relay.ts";
import type { Balancer } from "./balancer.ts";
import { type Lane, laneKey } from "./portals.ts";

interface ServiceRelaysOptions {
  readonly relays: Relays;
  readonly balancer: Balancer;
  readonly udpIdleTimeoutMs: number;
  readonly observe: (name: ServicePortName) => RelayObserver;
}

interface ListenRequest {
  readonly name: ServicePortName;
  readonly address: IpAddress;
  /** 0: any free port. */
  readonly port: number;
  /** Clients that may connect; empty: all. */
  readonly sources: readonly Cidr[];
  /** The client's lane; undefined: it is refused. */
  readonly laneOf: (client: IpAddress) => Lane | undefined;
}

export class ServiceRelays {
  readonly #options: ServiceRelaysOptions;
  /** By key of the service port. */
  readonly #relays = new Map<string, Set<Relay>>();
  /** Closed ones, with the key of their service port: they stay while connections go on. */
  readonly #closed = new Map<Relay, string>();

  constructor(options: ServiceRelaysOptions) {
    this.#options = options;
  }

  /** Rejects with a `ListenError`. The protocol must be {@link isRelayed}. */
  async listen({ name, address, port, sources, laneOf }: ListenRequest): Promise<Relay> {
    const { relays, balancer, udpIdleTimeoutMs, observe } = this.#options;
    const pickAny: PickDestination = (client, attempt) => {
      const lane = laneOf(client.address);
      return lane === undefined ? undefined : balancer.pick(laneKey(name.key, lane), client, attempt > 0);
    };
    const isAllowed = (client: Destination) => sources.some((source) => cidrContains(source, client.address));
    const relay = await relays.listen({
      protocol: name.protocol as RelayProtocol, // the caller has checked
      address,
      port,
      pick:
        sources.length === 0
          ? pickAny
          : (client, attempt) => (isAllowed(client) ? pickAny(client, attempt) : undefined),
      observer: observe(name),
      idleTimeoutMs: udpIdleTimeoutMs,
    });
    const known = this.#relays.get(name.key) ?? new Set();
    this.#relays.set(name.key, known.add(relay));
    return relay;
  }

  /** Releases the port; TCP connections go on. */
  async close(name: ServicePortName, relay: Relay): Promise<void> {
    this.#forgetEnded();
    this.#closed.set(relay, name.key);
    await relay.close();
  }

  /** Ends the UDP sessions of a service port except those with these endpoints (`ip:port`). */
  endSessionsBut(key: string, serving: ReadonlySet<string>): void {
    for (const relay of this.#relays.get(key) ?? []) {
      if (relay.protocol !== "UDP") continue;
      for (const session of relay.sessions()) {
        const { destination } = session;
        if (destination !== undefined && !serving.has(joinHostPort(destination.address, destination.port)))
          session.cut();
      }
    }
  }

  /** Connections and sessions by endpoint (`ip:port`) of a service port; endpoints without any are left out. */
  openOf(key: string): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const relay of this.#relays.get(key) ?? []) {
      for (const { destination } of relay.sessions()) {
        const text = destination && joinHostPort(destination.address, destination.port);
        if (text !== undefined) counts.set(text, (counts.get(text) ?? 0) + 1);
      }
    }
    return counts;
  }

  /** Connections and sessions that have a destination. */
  *carried(): Iterable<{ readonly flow: LedFlow; readonly session: RelaySession }> {
    const all = [...this.#relays].flatMap(([key, relays]) => [...relays].map((relay) => [relay, key] as const));
    for (const [relay, carriedFor] of all) {
      const { protocol, address: destinationIP, port: destinationPort } = relay;
      for (const session of relay.sessions()) {
        const { client, destination } = session;
        if (destination === undefined) continue;
        const flow: LedFlow = {
          ...{ protocol, carriedFor, socket: `${protocol} ${client.address} ${client.port} ${destinationPort}` },
          ...{ sourceIP: client.address, sourcePort: client.port, destinationIP, destinationPort },
          ...{ replySourceIP: destination.address, replySourcePort: destination.port },
          ...{ replyDestinationIP: client.address, replyDestinationPort: client.port },
        };
        yield { flow, session };
      }
    }
  }

  /** The number of connections and sessions that are alive. */
  get connections(): number {
    let count = 0;
    for (const relay of this.#all()) count += relay.connections;
    return count;
  }

  /** Stops accepting. */
  async closeAll(): Promise<void> {
    await Promise.all([...this.#all()].map((relay) => relay.close()));
  }

  /** Closes everything and waits for the last connection; cuts the remaining ones after `timeoutMs`. */
  async drain(timeoutMs: number): Promise<void> {
    await Promise.all([...this.#all()].map((relay) => relay.drain(timeoutMs)));
    this.#relays.clear();
    this.#closed.clear();
  }

  *#all(): Iterable<Relay> {
    for (const relays of this.#relays.values()) yield* relays;
  }

  #forgetEnded(): void {
    for (const [relay, key] of this.#closed) {
      if (relay.connections > 0) continue;
      this.#closed.delete(relay);
      const known = this.#relays.get(key);
      known?.delete(relay);
      if (known?.size === 0) this.#relays.delete(key);
    }
  }
}

/** Whether the proxy can carry the protocol, which is not SCTP. */
export function isRelayed({ protocol }: ServicePortName): boolean {
  return protocol === "TCP" || protocol === "UDP";
}
