/**
 * One HTTP server on one configured address: listens, retries if it cannot, and closes with its signal (reference
 * operation.md §9.4).
 */
import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import type { Clock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import { type IpAddress, isUnspecified } from "../../../net/ip.ts";
import { ConnectionGate, type ConnectionLimits, serverLimits } from "./connection-gate.ts";
import { createGuardedHttp, type GuardedHttp } from "./guarded-http.ts";
import { reply, TEXT } from "./http-reply.ts";
import { parseListenAddress } from "./listen-address.ts";
import type { HttpHandler } from "./routes.ts";

const RETRY_MS = 5_000;
const DRAIN_MS = 1_000;
/** A full server is logged at most this often. */
const FULL_REPORT_MS = 60_000;

export interface HttpEndpointOptions {
  /** `IP:port`; `0.0.0.0` and `::` mean all addresses of both families. */
  readonly address: string;
  readonly handler: HttpHandler;
  /** @default those of a process with plenty of descriptors */
  readonly limits?: ConnectionLimits;
  readonly log: Logger;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Give up on the first failure instead of trying again every 5 s. */
  readonly isBindHardFail: boolean;
  /** Called for each failure to listen; the message names the address. */
  onListenFailure(error: Error): void;
  /** Called once, when `isBindHardFail` made us give up. */
  onHardFail(reason: string): void;
}

/** The options of a server that brings its own pages and messages; an empty address: no server. */
export type ServerOptions = Omit<HttpEndpointOptions, "handler" | "onListenFailure">;

export interface HttpEndpoint {
  /** Settles when the server listens, or has first failed to. */
  readonly tried: Promise<void>;
  /** Where it listens; `undefined` if it was closed or gave up before it could. */
  readonly listening: Promise<AddressInfo | undefined>;
  /** Settles when the signal has aborted and every connection is gone (at most a second later). Never rejects. */
  readonly closed: Promise<void>;
}

/**
 * An unspecified address of either family means all addresses of both, as in Go (reference operation.md §9); Node.js
 * does that when given no address, with IPv4 alone on hosts without IPv6.
 */
async function listen(server: Server, host: IpAddress, port: number): Promise<AddressInfo> {
  server.listen(isUnspecified(host) ? { port } : { host, port });
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the socket has no address");
  return address;
}

/** Stops accepting, closes idle connections, gives running requests a second to finish, then cuts what is left. */
function closeServer(server: Server, http: GuardedHttp, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    const cut = clock.setTimer(DRAIN_MS, () => http.closeNow());
    server.close(() => {
      cut.cancel();
      resolve();
    });
    http.closeWhenAnswered();
  });
}

/** Reports, at most once in a while, a server that is full or a peer at its limit. */
export function fullReporter(log: Logger, clock: Clock, facts: Readonly<Record<string, unknown>>) {
  let reportedMs = Number.NEGATIVE_INFINITY;
  return (peer: string): void => {
    const nowMs = clock.monotonicMs();
    if (nowMs - reportedMs < FULL_REPORT_MS) return;
    reportedMs = nowMs;
    log.warn("Too many HTTP connections: idle ones are closed for new ones", { ...facts, peer });
  };
}

/** What a server does, as status and page name it while it does not work. */
export function answeringAt(address: string): string {
  return `answering at ${address}`;
}

/** Starts the server. Returns at once; throws only if `address` is not `IP:port`. */
export function startHttpEndpoint(options: HttpEndpointOptions): HttpEndpoint {
  const { address, handler, log, clock, signal } = options;
  const target = parseListenAddress(address);
  if (target === undefined)
    throw new Error(`cannot listen on "${address}": expected IP:port, for example 0.0.0.0:10256`);
  const { host, port } = target;

  const guardedHandler: HttpHandler = async (request, response) => {
    try {
      await handler(request, response);
    } catch (error) {
      log.error("HTTP handler failed", error, { address, url: request.url ?? "" });
      if (response.headersSent) response.destroy();
      else reply(response, 500, TEXT, "internal error\n");
    }
  };
  const limits = options.limits ?? serverLimits(Number.POSITIVE_INFINITY).health;
  const gate = new ConnectionGate({ ...limits, onFull: fullReporter(log, clock, { address }) });
  const http = createGuardedHttp({ gate, clock });
  const server = createServer({ allowHalfOpen: true }, (socket) => http.accept(socket, guardedHandler));
  const tried = Promise.withResolvers<void>();

  let hasFailed = false;
  async function listenUntilItWorks(): Promise<AddressInfo | undefined> {
    while (!signal.aborted) {
      try {
        const bound = await listen(server, host, port);
        // From here on, an error event is about one connection that could not be accepted, for example too many files.
        server.on("error", (error) => log.error("HTTP server could not accept a connection", error, { address }));
        tried.resolve();
        if (hasFailed) log.info("HTTP server is listening now", { address, can: answeringAt(address) });
        return bound;
      } catch (error) {
        const failure = error instanceof Error ? error : new Error(String(error));
        hasFailed = true;
        options.onListenFailure(failure);
        tried.resolve();
        if (options.isBindHardFail) {
          options.onHardFail(failure.message);
          return undefined;
        }
        await clock.sleep(RETRY_MS, signal);
      }
    }
    return undefined;
  }

  const listening = listenUntilItWorks();
  async function closeWithSignal(): Promise<void> {
    if (!signal.aborted) await once(signal, "abort");
    tried.resolve();
    if ((await listening) !== undefined) await closeServer(server, http, clock);
  }
  return { tried: tried.promise, listening, closed: closeWithSignal() };
}
