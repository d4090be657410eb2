/** A UDP socket that clients send to, with a session for each client. */
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
  /** A part of {@link budget}, so that forged source addresses cannot exhaust all of it. */
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
    // The error concerns one datagram; the socket keeps working.
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
    // The address has the zone of a link-local client, which the kernel needs.
    if (!this.#isClosed && !isCongested(this.#socket)) this.#socket.send(datagram, port, address, ignore);
  }
}

function ignore(): void {}

/** Datagrams queued at most while the socket connects, which takes no longer than a turn of the event loop. */
const PENDING_LIMIT = 256;

interface UdpSessionEvents {
  /** The session sends from this address and port. @returns a function to call when it no longer does. */
  from(local: Destination): () => void;
  /** Sends a datagram to the client. */
  reply(datagram: Buffer): void;
  /** Called once. */
  ended(): void;
}

/**
 * One client's session (reference userspace.md §1.9): its own socket, connected to the destination, so that replies reach
 * the right client. Ends when neither side has sent anything for the idle timeout.
 */
class UdpSession implements RelaySession {
  readonly client: Destination;
  readonly #options: RelayOptions;
  readonly #events: UdpSessionEvents;
  readonly #idle: NodeJS.Timeout;
  #attempt = -1;
  /** Datagrams received from both sides. */
  #heard = 0;
  #destination: Destination | undefined;
  /** `undefined` until the first datagram, and after a destination failed. */
  #socket: Socket | undefined;
  /** Datagrams to send once the socket is connected; undefined when it is not connecting. */
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

  /** Forwards a datagram of the client, and picks a destination first if there is none. */
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

  /** Node.js runs timers before socket events: datagrams that arrived while the process was busy must count, too. */
  #endUnlessHeard(): void {
    const heard = this.#heard;
    setImmediate(() => {
      if (this.#heard === heard) this.cut();
    });
  }

  #connect(pending: Buffer[]): void {
    const { pick, observer, dialTimeoutsMs = DIAL_TIMEOUTS_MS } = this.#options;
    // After the last attempt the number stays the same: every further datagram picks a destination again.
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
      if (remote.port !== destination.port) return; // another sender's, queued before the socket was connected
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
    // Where nothing listens at a port of this host, the kernel may have assigned that very port to this socket.
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

  /** Nothing listens there, or there is no route: the client's next datagram goes to another destination. */
  #fail(socket: Socket, error: NodeJS.ErrnoException): void {
    if (this.#socket !== socket || this.#destination === undefined) return;
    // The kernel rejected this datagram only.
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

/** What the kernel queues while the process is busy, up to its own limit (net.core.rmem_max). */
const RECEIVE_BUFFER_BYTES = 1 << 20;

/** What may wait for room in the kernel; datagrams beyond that are dropped, as a network would. */
const SEND_QUEUE_LIMIT_BYTES = 1 << 20;

/** Only addresses are looked up here. Answering synchronously saves each datagram a turn of the event loop. */
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

/** Whether so much is waiting to be sent that the next datagram should be dropped. */
function isCongested(socket: Socket): boolean {
  return socket.getSendQueueSize() > SEND_QUEUE_LIMIT_BYTES;
}
