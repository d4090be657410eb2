/**
 * Sockets that accept connections or datagrams and carry their bytes to a destination that the owner picks. Nothing here
 * knows about Services. Behaviour: reference userspace.md §1.8 and §1.9, except that half-closed connections stay open and
 * a dead backend does not hold up others.
 */
import { type IpAddress, parseIpAddress } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";

/** Node.js has no SCTP sockets. */
export type RelayProtocol = Exclude<Protocol, "SCTP">;

export interface Destination {
  readonly address: IpAddress;
  readonly port: number;
}

export function isSame(one: Destination, other: Destination): boolean {
  return one.port === other.port && one.address === other.address;
}

/**
 * The destination to dial for a client; `undefined` if there is none. Called for each attempt: 0 is the first, later
 * ones follow failed dials. Must not throw.
 */
export type PickDestination = (client: Destination, attempt: number) => Destination | undefined;

/** Called from the data path: must be quick and must not throw. */
export interface RelayObserver {
  /** A connection or session reached its destination. */
  opened(destination: Destination): void;
  /** One that was opened has ended. */
  closed(destination: Destination): void;
  /** Bytes were forwarded: `in` from the client to the destination, `out` back. */
  bytes(direction: "in" | "out", count: number): void;
  /** One attempt failed; the next one may follow. */
  dialFailed(destination: Destination, reason: string): void;
  /** A client was refused: there is no destination, all attempts failed, it came in a loop, or a limit was reached. */
  refused(client: Destination, reason: string): void;
}

/** A listening socket. */
export interface Relay {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  /** The actual port, also if any free port was requested. */
  readonly port: number;
  /** How many TCP connections or UDP sessions are alive, those still dialling included. */
  readonly connections: number;
  /** Stops accepting and releases the port. TCP connections go on; UDP sessions end. May be called again. */
  close(): Promise<void>;
  /** Closes, and resolves when the last TCP connection has ended; cuts the remaining ones after `timeoutMs`. */
  drain(timeoutMs: number): Promise<void>;
  /** The TCP connections or UDP sessions that are alive; they may end during the iteration. */
  sessions(): Iterable<RelaySession>;
}

/** One client's TCP connection or UDP session. */
export interface RelaySession {
  readonly client: Destination;
  /** Undefined while there is none. */
  readonly destination: Destination | undefined;
  /** Ends it; a connection is reset. */
  cut(): void;
}

export interface RelayOptions {
  readonly protocol: RelayProtocol;
  /** A local address; `0.0.0.0` and `::` mean all of that family, and of that family only. */
  readonly address: IpAddress;
  /** 0: any free port. */
  readonly port: number;
  readonly pick: PickDestination;
  readonly observer: RelayObserver;
  /** A UDP session ends after so long a silence in both directions; more than 0. */
  readonly idleTimeoutMs: number;
  /** Whether TCP connections end then, too. @default false */
  readonly endsIdle?: boolean;
  /** The user who owns a TCP client's socket: each has a share of all connections. @default they are not told apart */
  readonly userOf?: (client: Destination, relay: Destination) => Promise<number | undefined>;
  /** The timeout of each dial attempt. @default 250, 500, 1000 and 2000 */
  readonly dialTimeoutsMs?: readonly number[];
  /** Whether a TCP client that is refused or cut sees the end of the stream instead of a reset. @default false */
  readonly endsQuietly?: boolean;
}

/** The sockets of one network namespace. */
export interface Relays {
  /** Rejects with a `ListenError`. */
  listen(options: RelayOptions): Promise<Relay>;
  /**
   * Reserves the port until disposed, so that no other process listens there; clients are refused. Rejects with a
   * `ListenError`.
   */
  hold(protocol: RelayProtocol, address: IpAddress, port: number): Promise<AsyncDisposable>;
}

/** Reference userspace.md §1.8. */
export const DIAL_TIMEOUTS_MS: readonly number[] = [250, 500, 1000, 2000];

/** @param address as Node.js writes it: canonical, but with the zone of a link-local one. */
export function clientAt(address: string, port: number): Destination {
  const zoneAt = address.indexOf("%");
  const bare = zoneAt < 0 ? address : address.slice(0, zoneAt);
  // The kernel's text of an address is canonical, except for what parsing normalises.
  return { address: parseIpAddress(bare) ?? (bare as IpAddress), port };
}
