/**
 * HTTP over accepted sockets, such that no client can hurt the program: the gate limits connections, each is answered one
 * request at a time, and a connection that is slow to ask, asks too much, is idle, or does not take its answer is closed.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../../../async/clock.ts";
import { createServer } from "../../../kernel/node-http.ts";
import type { ConnectionGate, GatedConnection, Worth } from "./connection-gate.ts";
import { reply, TEXT } from "./http-reply.ts";
import type { HttpHandler } from "./routes.ts";

/** How long a new connection may take to send its first request, and a request its body. */
const REQUEST_MS = 10_000;
/** Longer than usual scrape intervals, so that a scraper's connection is not cut between two of them. */
const KEEP_ALIVE_MS = 120_000;
/** A reader that takes nothing for this long is cut off. */
const STALLED_MS = 30_000;
/** A client that has sent its last byte may be gone: it counts as gone when nothing has been written for this long. */
const END_MS = 1_000;
/** The last one ends its connection. Node's parser starts at once every request that has arrived. */
const MOST_REQUESTS = 32;

export interface GuardedHttpOptions {
  readonly gate: ConnectionGate;
  readonly clock: Clock;
}

export interface GuardedHttp {
  /** Serves an accepted socket, whose server must have `allowHalfOpen`. The handler must not reject. */
  accept(socket: Socket, handler: HttpHandler): void;
  /** Closes connections without a request, and the others once they are answered. */
  closeWhenAnswered(): void;
  closeNow(): void;
}

/** What Node's `_http_common` adds to a socket: what it does with each request, and the answer 2 for an upgrade. */
interface ParsedSocket extends Pick<Socket, "destroy"> {
  readonly parser?: { onIncoming: () => number } | null;
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

class Connection implements GatedConnection {
  readonly peer: string;
  readonly #socket: Socket;
  readonly #handler: HttpHandler;
  readonly #clock: Clock;
  readonly #waiting: Exchange[] = [];
  /** Called when there is nothing left to answer. */
  readonly #onIdle: () => void;
  #current: Exchange | undefined;
  #last: IncomingMessage | undefined;
  #deadline: Timer;
  /** Since the client has sent its last byte. */
  #ending: Timer | undefined;
  #isClosing = false;
  #answers = 0;

  constructor(socket: Socket, handler: HttpHandler, clock: Clock, onIdle: () => void) {
    this.peer = socket.remoteAddress ?? "";
    this.#socket = socket;
    this.#handler = handler;
    this.#clock = clock;
    this.#onIdle = onIdle;
    this.#deadline = clock.setTimer(REQUEST_MS, () => this.close());
    socket.once("end", () => this.#closeWhenStalled());
    socket.once("close", () => {
      this.#deadline.cancel();
      this.#ending?.cancel();
    });
  }

  #closeWhenStalled(): void {
    const written = this.#socket.bytesWritten;
    this.#ending = this.#clock.setTimer(END_MS, () => {
      if (this.#socket.bytesWritten === written) this.close();
      else this.#closeWhenStalled();
    });
  }

  worth(): Worth {
    if (this.#current !== undefined) return this.#current.response.writableEnded ? 2 : 3;
    return this.#last === undefined ? 0 : 1;
  }

  close(): void {
    this.#socket.destroy();
  }

  closeWhenAnswered(): void {
    this.#isClosing = true;
    if (this.#current === undefined && this.#waiting.length === 0) this.close();
  }

  ask(request: IncomingMessage, response: ServerResponse): void {
    this.#last = request;
    this.#waiting.push({ request, response });
    if (this.#current === undefined) this.#answerNext();
  }

  #answerNext(): void {
    const exchange = this.#waiting.shift();
    this.#current = exchange;
    this.#deadline.cancel();
    if (exchange === undefined) {
      if (this.#isClosing) this.close();
      else this.#deadline = this.#clock.setTimer(KEEP_ALIVE_MS, () => this.close());
      this.#onIdle();
      return;
    }
    const { request, response } = exchange;
    if (!request.complete) {
      this.#deadline = this.#clock.setTimer(REQUEST_MS, () => {
        if (!request.complete) this.close();
      });
    }
    this.#answers += 1;
    if (this.#isClosing || this.#answers === MOST_REQUESTS) response.shouldKeepAlive = false;
    response.once("close", () => {
      if (this.#socket.destroyed) return;
      // Lets other connections take their turns: without a pause here, answers that fit into the kernel's buffer hold up all others.
      setImmediate(() => this.#socket.destroyed || this.#answerNext());
    });
    // As in Go: it is unknown which of them another server in front of this one considered (RFC 9112 §3.2).
    if ((request.headersDistinct.host?.length ?? 1) > 1)
      reply(response, 400, TEXT, "400 Bad Request: too many Host headers\n");
    else void this.#handler(request, response);
  }
}

/** Makes the server; it has no sockets of its own. */
export function createGuardedHttp({ gate, clock }: GuardedHttpOptions): GuardedHttp {
  const connections = new Set<Connection>();
  const bySocket = new WeakMap<object, Connection>();
  const http = createServer((request, response) => bySocket.get(request.socket)?.ask(request, response));
  // Of the time only informs the client: the connection's own deadline is what counts.
  const limits = { keepAliveTimeout: KEEP_ALIVE_MS, maxRequestsPerSocket: MOST_REQUESTS };
  // A client that has sent its last byte is answered.
  Object.assign(http, limits, { httpAllowHalfOpen: true });
  http.setTimeout(STALLED_MS, (socket) => {
    if (socket.writableLength > 0) socket.destroy();
  });
  http.on("dropRequest", (_request, socket: ParsedSocket) => {
    socket.destroy();
    // As for an upgrade, the parser leaves what follows alone. It does not look whether the socket is there.
    if (socket.parser) socket.parser.onIncoming = () => 2;
  });

  return {
    accept(socket, handler) {
      const connection = new Connection(socket, handler, clock, () => gate.touch(connection));
      bySocket.set(socket, connection);
      socket.once("close", () => {
        connections.delete(connection);
        gate.leave(connection);
      });
      if (!gate.enter(connection)) {
        socket.destroy();
        return;
      }
      connections.add(connection);
      http.emit("connection", socket);
    },
    closeWhenAnswered() {
      for (const connection of connections) connection.closeWhenAnswered();
    },
    closeNow() {
      for (const connection of connections) connection.close();
    },
  };
}
