/**
 * Sockets that take connections or datagrams and carry their bytes to a destination which the owner picks. Nothing here
 * knows of Services. Behaviour: reference userspace.md §1.8 and §1.9, but half-closed connections stay, and a dead backend
 * stops no others.
 */
import { type IpAddress, parseIpAddress } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";

/** SCTP needs a socket that Node.js does not have. */
export type RelayProtocol = Exclude<Protocol, "SCTP">;

export interface Destination {
  readonly address: IpAddress;
  readonly port: number;
}

/** Pure. */
export function isSame(one: Destination, other: Destination): boolean {
  return one.port === other.port && one.address === other.address;
}

/**
 * Whom to dial for a client. Asked per attempt: 0 is the first, later ones follow failed dials. `undefined`: no one to
 * send to. Must not throw.
 */
export type PickDestination = (client: Destination, attempt: number) => Destination | undefined;

/** Called from the data path: must be quick and must not throw. */
export interface RelayObserver {
  /** A connection or session reached its destination. */
  opened(destination: Destination): void;
  /** One that was opened has ended. */
  closed(destination: Destination): void;
  /** Bytes were handed on: `in` from the client to the destination, `out` back. */
  bytes(direction: "in" | "out", count: number): void;
  /** One attempt failed; the next one may follow. */
  dialFailed(destination: Destination, reason: string): void;
  /** A client was sent away: no one to send to, all attempts failed, or no descriptors left. */
  refused(client: Destination, reason: string): void;
}

/** A socket that listens. */
export interface Relay {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  /** Where it really listens, also when any port was asked for. */
  readonly port: number;
  /** TCP connections or UDP sessions that are alive, those still dialling included. */
  readonly connections: number;
  /** Accepts no more and gives the port back. TCP connections go on; UDP sessions end. May be called again. */
  close(): Promise<void>;
  /** Closes, then resolves when the last TCP connection has ended; cuts the rest after `timeoutMs`. */
  drain(timeoutMs: number): Promise<void>;
  /** TCP connections and UDP sessions that are alive; they may end while they are gone through. */
  sessions(): Iterable<RelaySession>;
}

/** One client's TCP connection or UDP session. */
export interface RelaySession {
  readonly client: Destination;
  /** Undefined while it is looked for. */
  readonly destination: Destination | undefined;
  /** Ends it, a connection abruptly. */
  cut(): void;
}

/** Ends the UDP sessions of a destination that is gone; their clients' next datagrams are picked for again. */
export function endSessionsTo(relay: Relay, gone: Destination): void {
  if (relay.protocol !== "UDP") return;
  for (const session of relay.sessions()) {
    if (session.destination !== undefined && isSame(session.destination, gone)) session.cut();
  }
}

export interface RelayOptions {
  readonly protocol: RelayProtocol;
  /** A local address; `0.0.0.0` and `::` mean all of that family, and of that family only. */
  readonly address: IpAddress;
  /** 0: any free port. */
  readonly port: number;
  readonly pick: PickDestination;
  readonly observer: RelayObserver;
  /** A UDP session ends when it was silent in both directions for so long; more than 0. */
  readonly idleTimeoutMs: number;
  /** The limit of each attempt to dial. @default 250, 500, 1000 and 2000 */
  readonly dialTimeoutsMs?: readonly number[];
  /** Whether a TCP client that is sent away or cut meets the end of what it reads, and no reset. @default false */
  readonly endsQuietly?: boolean;
}

/** The sockets of one network namespace. */
export interface Relays {
  /** Rejects with a `ListenError`. */
  listen(options: RelayOptions): Promise<Relay>;
  /**
   * Takes the port so that no other process listens there, until disposed; who connects is refused. Rejects with a
   * `ListenError`.
   */
  hold(protocol: RelayProtocol, address: IpAddress, port: number): Promise<AsyncDisposable>;
}

/** Reference userspace.md §1.8. */
export const DIAL_TIMEOUTS_MS: readonly number[] = [250, 500, 1000, 2000];

/** @param address as Node spells it: canonical, but with the zone of a link-local one. */
export function clientAt(address: string, port: number): Destination {
  const zoneAt = address.indexOf("%");
  const bare = zoneAt < 0 ? address : address.slice(0, zoneAt);
  // The kernel's text of an address of one family is canonical already, but for what parsing canonicalises.
  return { address: parseIpAddress(bare) ?? (bare as IpAddress), port };
}
