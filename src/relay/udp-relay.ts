/** A UDP socket that clients send to, and a session for each of them. */
import { createSocket, type RemoteInfo, type Socket, type SocketOptions } from "node:dgram";
import { LONGEST_TIMEOUT_MS } from "../async/clock.ts";
import type { Logger } from "../logging/logger.ts";
import { familyOf, type IpAddress, type IpFamily } from "../net/ip.ts";
import { type DescriptorBudget, takeForListening } from "./descriptor-budget.ts";
import { listenError, listenText } from "./listen-error.ts";
import { LOOP, type OwnDials } from "./own-dials.ts";
import {
  clientAt,
  type Destination,
  DIAL_TIMEOUTS_MS,
  isSame,
  type Relay,
  type RelayOptions,
  type RelaySession,
} from "./relay.ts";
import { MET_ITSELF } from "./tcp-dial.ts";

/** Shared by all UDP relays of a process. */
export interface UdpShared {
  readonly budget: DescriptorBudget;
  /** A part of {@link budget}: one who forges addresses must not take all of it. */
  readonly sessionBudget: DescriptorBudget;
  /** Sessions of all relays, by the client's address. */
  readonly sessionsOf: Map<IpAddress, number>;
  readonly ownDials: OwnDials;
  readonly log: Logger;
}

export class UdpRelay implements Relay {
  readonly protocol = "UDP";
  readonly address: IpAddress;
  readonly port: number;
  readonly #socket: Socket;
  readonly #options: RelayOptions;
  readonly #shared: UdpShared;
  /** By the client's address and port. */
  readonly #sessions = new Map<string, UdpSession>();
  #isClosed = false;

  private constructor(socket: Socket, options: RelayOptions, shared: UdpShared) {
    this.#socket = socket;
    this.#options = options;
    this.#shared = shared;
    this.address = options.address;
    this.port = socket.address().port;
    socket.on("message", (datagram, client) => this.#receive(datagram, client));
    // An error of one datagram: the socket goes on.
    socket.on("error", (error) =>
      shared.log.v(2, "Failed to receive a datagram", { at: listenText(this), err: error }),
    );
  }

  /** Rejects with a `ListenError`. */
  static async listen(options: RelayOptions, shared: UdpShared): Promise<UdpRelay> {
    takeForListening(shared.budget, options);
    const { address, port } = options;
    const socket = udpSocketFor(address);
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once("error", (error: NodeJS.ErrnoException) => reject(listenError(error.code, options, error)));
        socket.bind({ address, port, exclusive: true }, resolve);
      });
    } catch (error) {
      socket.close();
      shared.budget.giveBack(1);
      throw error;
    }
    return new UdpRelay(socket, options, shared);
  }

  get connections(): number {
    return this.#sessions.size;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.close();
    this.#shared.budget.giveBack(1);
    for (const session of this.#sessions.values()) session.cut();
  }

  drain(_timeoutMs: number): Promise<void> {
    return this.close();
  }

  sessions(): Iterable<RelaySession> {
    return this.#sessions.values();
  }

  #receive(datagram: Buffer, remote: RemoteInfo): void {
    const key = `${remote.address} ${remote.port}`;
    const session = this.#sessions.get(key) ?? this.#newSession(key, remote);
    session?.forward(datagram);
  }

  #newSession(key: string, remote: RemoteInfo): UdpSession | undefined {
    const client = clientAt(remote.address, remote.port);
    const { sessionBudget, sessionsOf, ownDials } = this.#shared;
    const held = sessionsOf.get(client.address) ?? 0;
    // One address may hold half of the limit; of several that take all they can, each holds as many sessions as stay free.
    const isGreedy = held > 0 && held >= sessionBudget.free;
    const isLoop = ownDials.isLoop(client);
    if (isLoop || isGreedy || !sessionBudget.take(1)) {
      const reason = isGreedy ? "too many UDP sessions from its address" : "out of file descriptors";
      this.#options.observer.refused(client, isLoop ? LOOP : reason);
      return undefined;
    }
    sessionsOf.set(client.address, held + 1);
    const session = new UdpSession(client, this.#options, {
      from: (local) => ownDials.add(local, client),
      reply: (datagram) => this.#reply(datagram, remote),
      ended: () => {
        this.#sessions.delete(key);
        const left = (sessionsOf.get(client.address) ?? 0) - 1;
        if (left > 0) sessionsOf.set(client.address, left);
        else sessionsOf.delete(client.address);
        sessionBudget.giveBack(1);
      },
    });
    this.#sessions.set(key, session);
    return session;
  }

  #reply(datagram: Buffer, { address, port }: RemoteInfo): void {
    // Source port 0 asks for no answer (RFC 768).
    if (port === 0) return;
    // With the zone of a link-local client, which the kernel needs.
    if (!this.#isClosed && !isCongested(this.#socket)) this.#socket.send(datagram, port, address, ignore);
  }
}

function ignore(): void {}

/** Datagrams kept while the socket is being connected, which takes no longer than a turn of the event loop. */
const PENDING_LIMIT = 256;

interface UdpSessionEvents {
  /** Its datagrams go out from this address and port. @returns to be called when they do not any more. */
  from(local: Destination): () => void;
  /** Something for the client. */
  reply(datagram: Buffer): void;
  /** Called once. */
  ended(): void;
}

/**
 * One client's datagrams (reference userspace.md §1.9): a socket of its own, connected to the destination, so that replies
 * find the way back. Ends when neither side has said anything for the idle timeout.
 */
class UdpSession implements RelaySession {
  readonly client: Destination;
  readonly #options: RelayOptions;
  readonly #events: UdpSessionEvents;
  readonly #idle: NodeJS.Timeout;
  #attempt = -1;
  /** Datagrams of both sides. */
  #heard = 0;
  #destination: Destination | undefined;
  /** `undefined` until the first datagram, and after a destination failed. */
  #socket: Socket | undefined;
  /** While it is being connected: what to send then. */
  #pending: Buffer[] | undefined;
  /** The destination that the observer counts as open. */
  #opened: Destination | undefined;
  #forgetDial: (() => void) | undefined;
  #isEnded = false;

  constructor(client: Destination, options: RelayOptions, events: UdpSessionEvents) {
    this.client = client;
    this.#options = options;
    this.#events = events;
    this.#idle = setTimeout(() => this.#endUnlessHeard(), Math.min(options.idleTimeoutMs, LONGEST_TIMEOUT_MS));
  }

  get destination(): Destination | undefined {
    return this.#destination;
  }

  /** Hands on a datagram of the client; looks for a destination first when there is none. */
  forward(datagram: Buffer): void {
    this.#stayAlive();
    if (this.#pending !== undefined) {
      if (this.#pending.length < PENDING_LIMIT) this.#pending.push(datagram);
    } else if (this.#socket !== undefined) this.#send(this.#socket, datagram);
    else this.#connect([datagram]);
  }

  cut(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#idle);
    this.#drop();
    this.#events.ended();
  }

  #stayAlive(): void {
    this.#heard++;
    this.#idle.refresh();
  }

  /** Timers come before sockets: what arrived while the process was busy counts as well. */
  #endUnlessHeard(): void {
    const heard = this.#heard;
    setImmediate(() => {
      if (this.#heard === heard) this.cut();
    });
  }

  #connect(pending: Buffer[]): void {
    const { pick, observer, dialTimeoutsMs = DIAL_TIMEOUTS_MS } = this.#options;
    // A client that goes on after failures stays with the last kind of attempt: its destination is picked again each time.
    this.#attempt = Math.min(this.#attempt + 1, dialTimeoutsMs.length - 1);
    const destination = pick(this.client, this.#attempt);
    if (destination === undefined) {
      observer.refused(this.client, "no endpoint");
      this.cut();
      return;
    }
    this.#destination = destination;
    this.#pending = pending;
    const socket = udpSocketFor(destination.address);
    this.#socket = socket;
    socket.on("error", (error: NodeJS.ErrnoException) => this.#fail(socket, error));
    socket.on("connect", () => this.#open(socket));
    socket.on("message", (datagram, remote) => {
      if (remote.port !== destination.port) return; // another sender was quicker than the connecting
      this.#stayAlive();
      observer.bytes("out", datagram.length);
      this.#events.reply(datagram);
    });
    socket.connect(destination.port, destination.address);
  }

  #open(socket: Socket): void {
    const destination = this.#destination;
    if (this.#socket !== socket || destination === undefined) return;
    const own = socket.address();
    const local = clientAt(own.address, own.port);
    // Where nothing listens on this host, the socket may have got the very port.
    if (isSame(local, destination)) {
      this.#fail(socket, new Error(MET_ITSELF));
      return;
    }
    this.#forgetDial = this.#events.from(local);
    this.#opened = destination;
    this.#options.observer.opened(destination);
    const pending = this.#pending ?? [];
    this.#pending = undefined;
    for (const datagram of pending) this.#send(socket, datagram);
  }

  #send(socket: Socket, datagram: Buffer): void {
    if (isCongested(socket)) return;
    this.#options.observer.bytes("in", datagram.length);
    socket.send(datagram, this.#onSent);
  }

  readonly #onSent = (error: NodeJS.ErrnoException | null): void => {
    if (error !== null && this.#socket !== undefined && !this.#isEnded) this.#fail(this.#socket, error);
  };

  /** Nothing listens there, or there is no way: the client's next datagram goes elsewhere. */
  #fail(socket: Socket, error: NodeJS.ErrnoException): void {
    if (this.#socket !== socket || this.#destination === undefined) return;
    // The kernel refused this datagram and will take the next one.
    if (error.code === "EMSGSIZE" || error.code === "ENOBUFS") return;
    const { observer, dialTimeoutsMs = DIAL_TIMEOUTS_MS } = this.#options;
    observer.dialFailed(this.#destination, error.code ?? error.message);
    const pending = this.#pending;
    this.#drop();
    if (pending === undefined) return;
    if (this.#attempt < dialTimeoutsMs.length - 1) this.#connect(pending);
    else observer.refused(this.client, "failed to connect to an endpoint");
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#pending = undefined;
    this.#destination = undefined;
    this.#forgetDial?.();
    this.#forgetDial = undefined;
    socket?.close();
    const opened = this.#opened;
    if (opened === undefined) return;
    this.#opened = undefined;
    this.#options.observer.closed(opened);
  }
}

/** Kept by the kernel while the process is busy; it has a limit of its own (net.core.rmem_max). */
const RECEIVE_BUFFER_BYTES = 1 << 20;

/** May wait for room in the kernel; datagrams beyond that are dropped, as the network would. */
const SEND_QUEUE_LIMIT_BYTES = 1 << 20;

/** Everything that comes here is an address. Answering at once spares every datagram a turn. */
function lookupFor(family: IpFamily): NonNullable<SocketOptions["lookup"]> {
  const number = family === "IPv6" ? 6 : 4;
  return (address, _options, callback) => callback(null, address, number);
}

const OPTIONS: Readonly<Record<IpFamily, SocketOptions>> = {
  IPv4: { type: "udp4", lookup: lookupFor("IPv4"), recvBufferSize: RECEIVE_BUFFER_BYTES },
  IPv6: { type: "udp6", ipv6Only: true, lookup: lookupFor("IPv6"), recvBufferSize: RECEIVE_BUFFER_BYTES },
};

/** A socket of the address's family, not bound yet. */
function udpSocketFor(address: IpAddress): Socket {
  return createSocket(OPTIONS[familyOf(address)]);
}

/** Whether so much waits to be sent that another datagram had better be dropped. */
function isCongested(socket: Socket): boolean {
  return socket.getSendQueueSize() > SEND_QUEUE_LIMIT_BYTES;
}
