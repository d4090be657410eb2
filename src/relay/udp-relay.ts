/** A UDP socket that clients send to, and a session for each of them. */
import type { RemoteInfo, Socket } from "node:dgram";
import type { Logger } from "../logging/logger.ts";
import type { IpAddress } from "../net/ip.ts";
import { type DescriptorBudget, takeForListening } from "./descriptor-budget.ts";
import { listenError, listenText } from "./listen-error.ts";
import { clientAt, type Relay, type RelayOptions, type RelaySession } from "./relay.ts";
import { isCongested, UdpSession, udpSocketFor } from "./udp-session.ts";

/** Shared by all UDP relays of a process. */
export interface UdpShared {
  readonly budget: DescriptorBudget;
  /** A part of {@link budget}: one who forges addresses must not take all of it. */
  readonly sessionBudget: DescriptorBudget;
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
    const { sessionBudget } = this.#shared;
    if (!sessionBudget.take(1)) {
      this.#options.observer.refused(client, "out of file descriptors");
      return undefined;
    }
    const session = new UdpSession(client, this.#options, {
      reply: (datagram) => this.#reply(datagram, remote),
      ended: () => {
        this.#sessions.delete(key);
        sessionBudget.giveBack(1);
      },
    });
    this.#sessions.set(key, session);
    return session;
  }

  #reply(datagram: Buffer, { address, port }: RemoteInfo): void {
    // With the zone of a link-local client, which the kernel needs.
    if (!this.#isClosed && !isCongested(this.#socket)) this.#socket.send(datagram, port, address, ignore);
  }
}

function ignore(): void {}
