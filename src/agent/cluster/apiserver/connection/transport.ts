/**
 * Sends requests to the API server over node:http(s): keep-alive, the client-side rate limit, fresh credentials, gzip,
 * and clear errors. Knows nothing about resources except their names.
 */
import type { ClientRequest, Agent as HttpAgent, IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { isIP, type Socket } from "node:net";
import { type Duplex, pipeline } from "node:stream";
import type { Clock } from "../../../../async/clock.ts";
import { Agent as PlainAgent, request as plainRequest } from "../../../../kernel/node-http.ts";
import { detectDeadPeer } from "../../../../kernel/tcp-liveness.ts";
import type { Credentials, Identity, TlsMaterial } from "../auth/identity.ts";
import { accepting } from "../formats/body-format.ts";
import { ApiError, type ApiErrorFacts } from "./api-error.ts";
import { type ClientConfig, ClientConfigError } from "./client-config.ts";
import { connectionError } from "./connection-errors.ts";
import { proxyFor } from "./proxy-choice.ts";
import { followTunnels } from "./proxy-tunnel.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import type { RestObserver } from "./rest-metrics.ts";
import { connectionOptions } from "./secure-context.ts";
import { httpError } from "./status.ts";

export interface ApiRequest {
  readonly verb: "get" | "list" | "watch" | "create" | "patch";
  /** The resource's plural name, for messages: `services`. */
  readonly resource: string;
  readonly method: "GET" | "POST" | "PATCH";
  /** Includes the query: `/api/v1/services?limit=500`. */
  readonly path: string;
  /** The Accept header. @default JSON */
  readonly accept?: string;
  readonly body?: { readonly contentType: string; readonly text: string };
  /**
   * The longest pause within the response; also limits the wait for it if less than `answerMs`. Without it the response
   * may pause for any time: the kernel detects a dead connection.
   */
  readonly idleMs?: number;
  /** The longest wait for the response headers. @default 75 s */
  readonly answerMs?: number;
}

export interface ApiResponse {
  readonly contentType: string;
  /** The decompressed body. Reading to the end or leaving the loop both release the connection. */
  readonly body: AsyncIterable<Buffer>;
}

export interface TransportOptions {
  readonly config: ClientConfig;
  readonly identity: Identity;
  readonly limiter: RateLimiter;
  readonly userAgent: string;
  readonly clock: Clock;
  readonly observer?: RestObserver | undefined;
  /** Contains HTTPS_PROXY, HTTP_PROXY and NO_PROXY. @default the process's environment */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** The connect timeout, DNS lookup included; upstream's value. */
const CONNECT_LIMIT_MS = 30_000;
/**
 * The longest wait for the peer's first packet. The kernel sends a second SYN after one second and a third after three;
 * then its pauses double, and the program would notice a server's return only after such a pause.
 */
const FIRST_PACKET_LIMIT_MS = 3_000;
/** The longest pause in a TLS handshake; upstream's value. */
const HANDSHAKE_LIMIT_MS = 10_000;
/** The longest wait for response headers. The API server itself gives up after a minute. */
const ANSWER_LIMIT_MS = 75_000;
/** How often {@link Transport.credentialsChanged} checks the files. */
const LOOK_AT_FILES_MS = 500;
const MAX_ERROR_BODY_BYTES = 65_536;

export class Transport {
  readonly #options: TransportOptions;
  readonly host: string;
  readonly #isTls: boolean;
  readonly #prefix: string;
  /** Server and proxy, for messages. */
  #where: string;
  /** Credentials of the last request; undefined if they could not be read. */
  #sent: Credentials | undefined;
  #agent: { readonly tls: TlsMaterial | undefined; readonly agent: HttpAgent } | undefined;
  /** The connection to the proxy that the current call of `request` has started. */
  readonly #begun: Duplex[] = [];

  constructor(options: TransportOptions) {
    this.#options = options;
    const { server } = options.config;
    this.#isTls = server.protocol === "https:";
    this.host = server.port === "" ? `${server.hostname}:${this.#isTls ? 443 : 80}` : server.host;
    this.#prefix = server.pathname.replace(/\/+$/, "");
    this.#where = this.host;
  }

  /**
   * Sends a request and waits for the headers of a successful response.
   *
   * @throws ApiError otherwise, also while the body is read; after an abort with any code.
   */
  async send(request: ApiRequest, signal: AbortSignal): Promise<ApiResponse> {
    const { limiter, observer } = this.#options;
    const waitedMs = await limiter.take(signal);
    observer?.rateLimited(request.method, this.host, waitedMs / 1000);
    const title = titleOf(request);
    const throwIfStopped = (): void => {
      if (signal.aborted) throw new ApiError("unreachable", { request: title, detail: "stopped before it was sent" });
    };
    throwIfStopped();
    const credentials = await this.#credentials(title, signal).catch((error: unknown) => {
      throwIfStopped();
      throw error;
    });
    // Reading files takes time. A signal that aborted earlier fires no event: a watch would last for minutes.
    throwIfStopped();
    let exchange = await this.#exchange(request, credentials, signal);
    // The server closed an idle connection while the request was being written: a retry on a new one is safe.
    if (exchange.wasReused && isCut(exchange.failure) && request.method === "GET" && !signal.aborted) {
      observer?.retried(request.method, this.host, "<error>");
      exchange = await this.#exchange(request, credentials, signal);
    }
    if (exchange.response === undefined) {
      const error = connectionError(title, this.#where, exchange.failure);
      // A new certificate may help.
      if (error.code === "tls") this.#options.identity.refused();
      throw error;
    }
    return await this.#accept(request, exchange.response);
  }

  /**
   * Reads token and certificate files without sending anything. Does not run a credential plugin: it may need the
   * network, which may come up later, whereas a missing file will not appear.
   *
   * @throws ClientConfigError if they cannot be used.
   */
  async checkFiles(): Promise<void> {
    const { config, identity } = this.#options;
    if (config.authentication.kind !== "exec") await identity.current();
  }

  /** Resolves when a credential file differs from what this transport last sent, or when the signal aborts. */
  async credentialsChanged(signal: AbortSignal): Promise<void> {
    const { clock, identity } = this.#options;
    while (!signal.aborted && !(await identity.hasChanged(this.#sent))) await clock.sleep(LOOK_AT_FILES_MS, signal);
    if (!signal.aborted) identity.refused();
  }

  /** Closes idle connections; the others close when their requests end. */
  close(): void {
    if (this.#agent !== undefined) retire(this.#agent.agent);
    this.#agent = undefined;
  }

  async #credentials(title: string, signal: AbortSignal): Promise<Credentials> {
    try {
      this.#sent = undefined;
      this.#sent = await this.#options.identity.current(signal);
      return this.#sent;
    } catch (error) {
      if (!(error instanceof ClientConfigError)) throw error;
      throw new ApiError("credentials", { request: title, detail: error.message }, { cause: error });
    }
  }

  async #exchange(request: ApiRequest, credentials: Credentials, signal: AbortSignal): Promise<Exchange> {
    const { clock, observer } = this.#options;
    const startMs = clock.monotonicMs();
    // It throws if Node.js rejects headers or TLS material.
    const exchange = await this.#sendAndWait(request, credentials, signal).catch(
      (error: unknown): Exchange => ({ response: undefined, failure: error, wasReused: false }),
    );
    const code = exchange.response === undefined ? "<error>" : String(exchange.response.statusCode);
    observer?.answered(request.method, this.host, code, (clock.monotonicMs() - startMs) / 1000);
    observer?.requestSize(request.method, this.host, Buffer.byteLength(request.body?.text ?? ""));
    return exchange;
  }

  #sendAndWait(request: ApiRequest, credentials: Credentials, signal: AbortSignal): Promise<Exchange> {
    const { config, userAgent, clock } = this.#options;
    const { method, body, idleMs = Number.POSITIVE_INFINITY, answerMs = ANSWER_LIMIT_MS } = request;
    return new Promise((resolve) => {
      const sent: ClientRequest = (this.#isTls ? httpsRequest : plainRequest)({
        agent: this.#agentFor(credentials.tls),
        host: config.server.hostname.replace(/^\[|\]$/g, ""),
        port: config.server.port === "" ? (this.#isTls ? 443 : 80) : Number(config.server.port),
        method,
        path: this.#prefix + request.path,
        timeout: Math.min(idleMs, CONNECT_LIMIT_MS),
        headers: {
          ...credentials.headers,
          "User-Agent": userAgent,
          Accept: request.accept ?? accepting(false),
          // No server compresses watches, and an event must not wait in a decompressor.
          ...(request.verb === "watch" || config.isCompressionDisabled === true ? {} : { "Accept-Encoding": "gzip" }),
          ...(body === undefined
            ? {}
            : { "Content-Type": body.contentType, "Content-Length": Buffer.byteLength(body.text) }),
        },
      });
      let response: IncomingMessage | undefined;
      // The connection to the proxy: until the tunnel exists the request has no socket and does not report its end.
      let [tunnel] = this.#begun.splice(0);
      const fail = (failure: Error): void => {
        signal.removeEventListener("abort", onAbort);
        late?.cancel();
        tunnel?.destroy(failure);
        resolve({ response: undefined, failure, wasReused: sent.reusedSocket });
      };
      const end = (failure: Error): void => {
        (response ?? sent).destroy(failure);
        fail(failure);
      };
      const onAbort = (): void => end(new Error("stopped"));
      signal.addEventListener("abort", onAbort, { once: true });
      sent.on("close", () => fail(Object.assign(new Error("closed without a response"), { code: "ECONNRESET" })));
      let silence: Silence = { limitMs: Math.min(idleMs, CONNECT_LIMIT_MS) };
      const limit = (socket: Socket, { limitMs, reached }: Silence): void => {
        silence = { limitMs: Math.min(idleMs, limitMs), reached };
        socket.setTimeout(Number.isFinite(silence.limitMs) ? silence.limitMs : 0);
      };
      const answer: Silence = { limitMs: answerMs, reached: "unanswered" };
      const onSilence = (): void => end(silenceError(titleOf(request), this.#where, silence));
      const late = tunnel && clock.setTimer(silence.limitMs, onSilence);
      sent.on("socket", (socket) => {
        tunnel = undefined;
        late?.cancel();
        if (!socket.connecting) {
          // From the pool, where Node.js makes the kernel probe it every second, or a tunnel, which comes connected.
          detectDeadPeer(socket);
          limit(socket, answer);
          return;
        }
        followConnection(socket, config.server.hostname, (limitMs) => limit(socket, { limitMs, reached: "absent" }));
        socket.once("connect", () => {
          detectDeadPeer(socket);
          limit(socket, this.#isTls ? { limitMs: HANDSHAKE_LIMIT_MS } : answer);
        });
        socket.once("secureConnect", () => limit(socket, answer));
      });
      sent.on("timeout", onSilence);
      sent.on("error", fail);
      sent.on("response", (incoming) => {
        response = incoming;
        // A refusal is read to its end before it is reported, so only a successful response may pause without limit.
        limit(incoming.socket, { limitMs: isGood(incoming) ? idleMs : answerMs });
        // Until the first reader attaches, an error must not end the process.
        incoming.on("error", () => {});
        resolve({ response: incoming, failure: undefined, wasReused: false });
      });
      sent.end(body?.text);
    });
  }

  async #accept(request: ApiRequest, response: IncomingMessage): Promise<ApiResponse> {
    const { statusCode: status = 0, headers } = response;
    const body = this.#read(request, response);
    if (isGood(response)) return { contentType: headers["content-type"] ?? "", body };
    if (status === 401) this.#options.identity.refused();
    throw httpError(titleOf(request), status, await readSome(body), headers);
  }

  async *#read(request: ApiRequest, response: IncomingMessage): AsyncGenerator<Buffer, void, void> {
    const { observer } = this.#options;
    const isGzip = response.headers["content-encoding"] === "gzip";
    // Loads zlib on demand: streamed lists are not compressed, so most nodes never need it.
    const stream: AsyncIterable<unknown> = isGzip
      ? pipeline(response, process.getBuiltinModule("node:zlib").createGunzip(), () => {})
      : response;
    let bytes = 0;
    try {
      for await (const chunk of stream) {
        if (!Buffer.isBuffer(chunk)) continue;
        bytes += chunk.length;
        yield chunk;
      }
    } catch (error) {
      throw connectionError(titleOf(request), this.#where, error);
    }
    if (request.verb !== "watch") observer?.responseSize(request.method, this.host, bytes);
  }

  /** The connection pool; a new one after TLS material was rotated, so that new requests do not use the old. */
  #agentFor(tls: TlsMaterial | undefined): HttpAgent {
    if (this.#agent !== undefined && this.#agent.tls === tls) return this.#agent.agent;
    this.close();
    const { config, env = process.env } = this.#options;
    const proxy = proxyFor(config.server, config.proxyUrl, env);
    // Omits the proxy's password.
    this.#where = proxy === undefined ? this.host : `${this.host} through the proxy ${hostOf(proxy)}`;
    const options = {
      keepAlive: true,
      ...(proxy === undefined ? {} : { proxyEnv: { HTTPS_PROXY: proxy, HTTP_PROXY: proxy } }),
    };
    const agent =
      tls === undefined ? new PlainAgent(options) : new HttpsAgent({ ...options, ...connectionOptions(tls) });
    if (proxy !== undefined && agent instanceof HttpsAgent) followTunnels(agent, (begun) => this.#begun.push(begun));
    this.#agent = { tls, agent };
    return agent;
  }
}

export type ApiTransport = Pick<Transport, keyof Transport>;

interface Exchange {
  readonly response: IncomingMessage | undefined;
  readonly failure: unknown;
  readonly wasReused: boolean;
}

function isGood({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200 && statusCode < 300;
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url.replace(/^.*@/, "");
}

/** Prevents any reuse of the pool's connections. (`destroy` would also cut those in use.) */
function retire(agent: HttpAgent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}

function isCut(failure: unknown): boolean {
  return failure instanceof Error && "code" in failure && (failure.code === "ECONNRESET" || failure.code === "EPIPE");
}

function titleOf({ verb, resource }: ApiRequest): string {
  return `${verb} ${resource}`;
}

/** The longest pause allowed now, and how far the request has got. */
interface Silence {
  readonly limitMs: number;
  readonly reached?: ApiErrorFacts["reached"];
}

function silenceError(request: string, where: string, { limitMs, reached }: Silence): ApiError {
  const detail = `${where}: nothing arrived for ${Math.round(limitMs / 1000)} s: check the network and the API server`;
  return new ApiError("timeout", { request, detail, reached });
}

/** Limits the wait for the peer's first packet, starting when its address is known. */
function followConnection(socket: Socket, hostname: string, limit: (limitMs: number) => void): void {
  socket.on("connectionAttempt", () => limit(FIRST_PACKET_LIMIT_MS));
  // An IP address needs no lookup: the attempt has already started.
  if (isIP(hostname.replace(/^\[|\]$/g, "")) !== 0) limit(FIRST_PACKET_LIMIT_MS);
}

async function readSome(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_ERROR_BODY_BYTES) break;
    }
  } catch {
    // The status is enough.
  }
  return Buffer.concat(chunks);
}
