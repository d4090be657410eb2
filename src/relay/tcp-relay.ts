/** A listening TCP socket and the connections that it accepted. */
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { systemClock } from "../async/clock.ts";
import { familyOf, type IpAddress } from "../net/ip.ts";
import { takeForListening } from "./descriptor-budget.ts";
import { listenError, listenText } from "./listen-error.ts";
import { clientAt, type Destination, type Relay, type RelayOptions, type RelaySession } from "./relay.ts";
import { TcpConnection, type TcpShared } from "./tcp-connection.ts";
import { KEEP_ALIVE } from "./tcp-dial.ts";

/** Connections that the kernel queues until they are accepted, up to its own limit (net.core.somaxconn). */
const BACKLOG = 4096;

export class TcpRelay implements Relay {
  readonly protocol = "TCP";
  readonly address: IpAddress;
  readonly port: number;
  readonly #server: Server;
  readonly #shared: TcpShared;
  readonly #options: RelayOptions;
  readonly #connections = new Set<TcpConnection>();
  #isClosed = false;
  #idle: PromiseWithResolvers<void> | undefined;

  private constructor(server: Server, options: RelayOptions, shared: TcpShared) {
    this.#server = server;
    this.#shared = shared;
    this.address = options.address;
    this.#options = options;
    this.port = (server.address() as AddressInfo).port; // a listening TCP server always has one
    server.on("connection", (accepted: Socket) => this.#accept(accepted));
    // The server keeps listening after an error of one connection.
    server.on("error", (error) =>
      shared.log.v(2, "Failed to accept a connection", { at: listenText(this), err: error }),
    );
  }

  /** Rejects with a `ListenError`. */
  static async listen(options: RelayOptions, shared: TcpShared): Promise<TcpRelay> {
    takeForListening(shared.budget, options);
    const { address, port } = options;
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true, ...KEEP_ALIVE });
    try {
      await new Promise<void>((resolve, reject) => {
        server.once("error", (error: NodeJS.ErrnoException) => reject(listenError(error.code, options, error)));
        const ipv6Only = familyOf(address) === "IPv6";
        server.listen({ host: address, port, ipv6Only, backlog: BACKLOG, exclusive: true }, resolve);
      });
    } catch (error) {
      shared.budget.giveBack(1);
      throw error;
    }
    return new TcpRelay(server, options, shared);
  }

  get connections(): number {
    return this.#connections.size;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // The port is free as soon as this returns; the callback would wait for all connections.
    this.#server.close();
    this.#shared.budget.giveBack(1);
  }

  async drain(timeoutMs: number): Promise<void> {
    await this.close();
    if (this.#connections.size === 0) return;
    const timer = new AbortController();
    this.#idle ??= Promise.withResolvers();
    const cut = systemClock.sleep(timeoutMs, timer.signal).then(() => {
      for (const connection of this.#connections) connection.cut(this.#options.endsQuietly);
    });
    await this.#idle.promise;
    timer.abort();
    await cut;
  }

  sessions(): Iterable<RelaySession> {
    return this.#connections;
  }

  #accept(accepted: Socket): void {
    const { remoteAddress, remotePort } = accepted;
    if (remoteAddress === undefined || remotePort === undefined) {
      accepted.destroy(); // the client is gone already
      return;
    }
    const client = clientAt(remoteAddress, remotePort);
    if (this.#options.userOf === undefined) this.#begin(accepted, client);
    else void this.#beginWithinShare(accepted, client, this.#options.userOf);
  }

  async #beginWithinShare(
    accepted: Socket,
    client: Destination,
    userOf: NonNullable<RelayOptions["userOf"]>,
  ): Promise<void> {
    const { users } = this.#shared;
    accepted.on("error", () => accepted.destroy());
    const user = await userOf(client, this);
    if (accepted.destroyed || this.#isClosed) accepted.destroy();
    else if (users.take(user)) this.#begin(accepted, client, () => users.giveBack(user));
    else {
      this.#options.observer.refused(client, "this user has too many connections");
      accepted.destroy();
    }
  }

  #begin(accepted: Socket, client: Destination, onEnd?: () => void): void {
    const connection = new TcpConnection(accepted, client, this.#options, this.#shared, () => {
      this.#connections.delete(connection);
      onEnd?.();
      if (this.#connections.size === 0) this.#idle?.resolve();
    });
    this.#connections.add(connection);
    connection.start();
  }
}
