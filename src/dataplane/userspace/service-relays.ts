/**
 * The sockets of service ports: each carries its clients to the endpoint that the balancer picks, and is remembered until its last
 * connection has ended, so that a stop can cut what is left.
 */

import type { ServicePortName } from "../../model/service-port-name.ts";
import { type Cidr, cidrContains, type IpAddress } from "../../net/ip.ts";
import type { Destination, PickDestination, Relay, RelayObserver, RelayProtocol, Relays } from "../../relay/relay.ts";
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
  /** The client's lane; undefined: it is sent away. */
  readonly laneOf: (client: IpAddress) => Lane | undefined;
}

export class ServiceRelays {
  readonly #options: ServiceRelaysOptions;
  readonly #open = new Map<string, Set<Relay>>();
  /** Closed ones with connections that go on. */
  readonly #retired = new Set<Relay>();

  constructor(options: ServiceRelaysOptions) {
    this.#options = options;
  }

  /** Rejects with a `ListenError`. The protocol must be one that {@link isRelayed}. */
  async listen({ name, address, port, sources, laneOf }: ListenRequest): Promise<Relay> {
    const { relays, balancer, udpIdleTimeoutMs, observe } = this.#options;
    const pickAny: PickDestination = (client, attempt) => {
      const lane = laneOf(client.address);
      return lane === undefined ? undefined : balancer.pick(laneKey(name.key, lane), client.address, attempt > 0);
    };
    const isAllowed = (client: Destination) => sources.some((source) => cidrContains(source, client.address));
    const relay = await relays.listen({
      protocol: name.protocol as RelayProtocol, // the caller has asked
      address,
      port,
      pick:
        sources.length === 0
          ? pickAny
          : (client, attempt) => (isAllowed(client) ? pickAny(client, attempt) : undefined),
      observer: observe(name),
      idleTimeoutMs: udpIdleTimeoutMs,
    });
    const known = this.#open.get(name.key);
    if (known === undefined) this.#open.set(name.key, new Set([relay]));
    else known.add(relay);
    return relay;
  }

  /** Gives the port back; TCP connections go on. */
  async close(name: ServicePortName, relay: Relay): Promise<void> {
    const known = this.#open.get(name.key);
    known?.delete(relay);
    if (known?.size === 0) this.#open.delete(name.key);
    this.#forgetEnded();
    this.#retired.add(relay);
    await relay.close();
  }

  /** Ends the UDP sessions of a service port that lead to one of these. */
  endSessionsTo(key: string, destinations: readonly Destination[]): void {
    for (const relay of this.#open.get(key) ?? [])
      for (const destination of destinations) relay.endSessionsTo(destination);
  }

  /** Connections and sessions that are alive. */
  get connections(): number {
    let count = 0;
    for (const relay of this.#all()) count += relay.connections;
    return count;
  }

  /** Stops accepting. */
  async closeAll(): Promise<void> {
    await Promise.all([...this.#all()].map((relay) => relay.close()));
  }

  /** Closes everything and waits for the last connection; what is left after `timeoutMs` is cut. */
  async drain(timeoutMs: number): Promise<void> {
    await Promise.all([...this.#all()].map((relay) => relay.drain(timeoutMs)));
    this.#open.clear();
    this.#retired.clear();
  }

  *#all(): Iterable<Relay> {
    for (const relays of this.#open.values()) yield* relays;
    yield* this.#retired;
  }

  #forgetEnded(): void {
    for (const relay of this.#retired) if (relay.connections === 0) this.#retired.delete(relay);
  }
}

/** Whether the proxy can carry the protocol: all but SCTP. */
export function isRelayed({ protocol }: ServicePortName): boolean {
  return protocol === "TCP" || protocol === "UDP";
}
