/**
 * A Kubernetes API server for tests: the real protocol over TLS for the resources that kube-proxy uses, with switches
 * for faults.
 */
import { once } from "node:events";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { CertificateAuthority, type KeyPair } from "../../src/agent/cluster/apiserver/testing/certificates.ts";
import { answerFault, type Fault, FaultyBody, sendStatus } from "./faults.ts";
import { type ListPage, ListPages } from "./list-pages.ts";
import { isBodyKnown, negotiatedFormat } from "./media-types.ts";
import { type ApiObject, keyOf, ObjectStore } from "./object-store.ts";
import { type Plural, parseResourcePath, type ResourcePath } from "./resource-types.ts";
import { fieldSelector, labelSelector, type Predicate } from "./selectors.ts";
import type { StatusOptions } from "./status-object.ts";
import { WatchStream } from "./watch-stream.ts";
import { JSON_WIRE, type WireFormat } from "./wire-format.ts";

export interface SeenRequest {
  readonly verb: string;
  readonly plural: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** Settings that tests may change at any time. */
export interface ServerSwitches {
  /** Chooses the fault of a request; called once for each. */
  fault: (request: SeenRequest) => Fault | undefined;
  /** Token → user; undefined allows any client. Client certificates identify users by common name. */
  tokens: ReadonlyMap<string, string> | undefined;
  /** Authorizes a user's request; undefined allows everything. */
  isAllowed: ((user: string, verb: string, plural: Plural, namespace: string | undefined) => boolean) | undefined;
  /** Supports `sendInitialEvents`; servers without it refuse it. */
  hasWatchList: boolean;
  /** Supports protobuf. */
  hasProtobuf: boolean;
  /** Compresses larger responses for clients that accept gzip. */
  hasGzip: boolean;
  /** Refuses a watch of an expired version with a status (true) or with an ERROR event. */
  refusesOldWatches: boolean;
  /** Respects `limit`; old watch caches did not for `resourceVersion=0`. */
  hasPages: boolean;
  /** The time limit of watches, which overrides their own. */
  watchTimeoutMs: number | undefined;
  /** The length of a second in the time limits that watches request. */
  secondMs: number;
  /** Responses of nodes, by the API server's proxy path. */
  proxied: ReadonlyMap<string, string>;
}

export interface TestApiServerOptions {
  readonly authority?: CertificateAuthority;
  /** @default one for 127.0.0.1 and localhost */
  readonly certificate?: KeyPair;
}

const GZIP_THRESHOLD_CHARS = 128 * 1024;

export class TestApiServer {
  readonly authority: CertificateAuthority;
  readonly store = new ObjectStore();
  readonly requests: SeenRequest[] = [];
  readonly switches: ServerSwitches = {
    fault: () => undefined,
    tokens: undefined,
    isAllowed: undefined,
    hasWatchList: true,
    hasProtobuf: true,
    hasGzip: true,
    refusesOldWatches: false,
    hasPages: true,
    watchTimeoutMs: undefined,
    secondMs: 1_000,
    proxied: new Map(),
  };
  readonly pages: ListPages;
  readonly #server: Server;
  #port = 0;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<WatchStream>();
  /** Body bytes, after compression. */
  sentBytes = 0;
  readonly #countSent = (bytes: number): void => {
    this.sentBytes += bytes;
  };

  private constructor(options: TestApiServerOptions) {
    this.authority = options.authority ?? new CertificateAuthority();
    this.pages = new ListPages(this.store);
    const certificate =
      options.certificate ?? this.authority.issue({ commonName: "kube-apiserver", names: ["127.0.0.1", "localhost"] });
    this.#server = createServer({
      cert: certificate.certificate,
      key: certificate.key,
      ca: this.authority.certificate,
      requestCert: true,
      rejectUnauthorized: false,
    });
    this.#server.on("request", (request, response) => void this.#onRequest(request, response));
    this.#server.on("secureConnection", (socket: TLSSocket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => {});
    });
    this.#server.on("tlsClientError", () => {});
  }

  /** Listens on the given port of 127.0.0.1, or on a free one. */
  static async start(options: TestApiServerOptions & { readonly port?: number } = {}): Promise<TestApiServer> {
    const server = new TestApiServer(options);
    server.#port = options.port ?? 0;
    await server.#listen();
    return server;
  }

  get port(): number {
    const address = this.#server.address();
    return isAddressInfo(address) ? address.port : 0;
  }

  get url(): string {
    return `https://127.0.0.1:${this.port}`;
  }

  get connections(): number {
    return this.#sockets.size;
  }

  /** The client ports of open connections. */
  get clientPorts(): readonly number[] {
    return [...this.#sockets].flatMap(({ remotePort }) => remotePort ?? []);
  }

  /** Open watches, of one resource or of all. */
  watches(plural?: Plural): readonly WatchStream[] {
    return [...this.#watches].filter((watch) => plural === undefined || watch.plural === plural);
  }

  put(plural: Plural, ...objects: readonly ApiObject[]): void {
    for (const object of objects) this.store.put(plural, object);
  }

  delete(plural: Plural, object: ApiObject): void {
    this.store.delete(plural, keyOf(object));
  }

  /** Sends a bookmark to every open watch of a resource that has changed. */
  sendBookmarks(): void {
    for (const watch of this.#watches) watch.sendBookmark();
  }

  cutConnections(): void {
    for (const watch of this.#watches) watch.close();
    this.#watches.clear();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Stops the server: cuts connections and refuses new ones until {@link TestApiServer.restart}. */
  async shutDown(): Promise<void> {
    this.#port = this.port;
    this.#server.close();
    this.cutConnections();
    await once(this.#server, "close");
  }

  /** Restarts after {@link TestApiServer.shutDown}: on the same port, with all objects, without any history. */
  async restart(): Promise<void> {
    this.store.restart();
    await this.#listen();
  }

  async #listen(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
  }

  /** The received requests of one verb and resource. */
  seen(verb: string, plural: Plural): readonly SeenRequest[] {
    return this.requests.filter((request) => request.verb === verb && request.plural === plural);
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.shutDown();
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", this.url);
    const path = parseResourcePath(url.pathname);
    const query = url.searchParams;
    const verb = verbOf(request.method ?? "", query, path);
    const body = await readBody(request);
    const seen = { verb, plural: path?.type.plural ?? "", query, headers: request.headers, body };
    this.requests.push(seen);
    const fault = this.switches.fault(seen);
    const format = negotiatedFormat(
      request.headers.accept,
      this.switches.hasProtobuf && path?.type.hasProtobuf === true,
    );
    if (answerFault(response, fault, format ?? JSON_WIRE)) return;
    const refusal =
      format === undefined
        ? { code: 406, message: "only media types are accepted that this server speaks" }
        : this.#answer({ verb, path, query, body, fault, format, request, response });
    if (refusal !== undefined) sendStatus(response, refusal, format ?? JSON_WIRE);
  }

  /** @returns the error to respond with; undefined if the request was handled. */
  #answer(exchange: Exchange): StatusOptions | undefined {
    const { verb, path } = exchange;
    const user = this.#userOf(exchange.request);
    if (user === undefined) return { code: 401, message: "Unauthorized" };
    const proxied = this.switches.proxied.get(new URL(exchange.request.url ?? "/", this.url).pathname);
    if (proxied !== undefined) {
      exchange.response.end(proxied);
      return undefined;
    }
    if (path === undefined) return { code: 404, message: "the server could not find the requested resource" };
    const { plural } = path.type;
    if (this.switches.isAllowed?.(user, verb, plural, path.namespace) === false) {
      const message = `${plural} is forbidden: User "${user}" cannot ${verb} resource "${plural}" at the cluster scope`;
      return { code: 403, message };
    }
    if (!isBodyKnown(verb, exchange.request.headers)) {
      return { code: 415, message: "the body of the request was in an unknown format" };
    }
    if (verb === "get") return this.#get(exchange, path);
    if (verb === "list") return this.#list(exchange, path);
    if (verb === "watch") return this.#watch(exchange, path);
    if (verb === "create" || verb === "patch") return this.#write(exchange, path, verb);
    return { code: 405, message: `${verb} is not supported by the test server` };
  }

  #userOf(request: IncomingMessage): string | undefined {
    const { tokens } = this.switches;
    if (tokens === undefined) return "system:kube-proxy";
    const socket = request.socket as TLSSocket; // the server is a TLS server
    if (socket.authorized) return String(socket.getPeerCertificate().subject.CN);
    const { authorization = "" } = request.headers;
    return authorization.startsWith("Bearer ") ? tokens.get(authorization.slice("Bearer ".length)) : undefined;
  }

  #get(
    { response, format }: Exchange,
    { type: { plural, kind, apiVersion }, namespace, name }: ResourcePath,
  ): StatusOptions | undefined {
    const known = this.store.objects(plural).get(namespace === undefined ? (name ?? "") : `${namespace}/${name}`);
    if (known === undefined) return { code: 404, message: `${plural} "${name}" not found` };
    response.writeHead(200, { "Content-Type": format.mediaType });
    response.end(format.object({ kind, apiVersion, ...known.object }));
    return undefined;
  }

  #list({ query, request, response, fault, format }: Exchange, path: ResourcePath): StatusOptions | undefined {
    const page = this.#page(path, query);
    if ("code" in page) return page;
    const size = page.items.reduce((length, { json }) => length + json.length, 0);
    const canRead = String(request.headers["accept-encoding"]).includes("gzip");
    const isGzip = this.switches.hasGzip && size > GZIP_THRESHOLD_CHARS && canRead;
    response.writeHead(200, { "Content-Type": format.mediaType, ...(isGzip ? { "Content-Encoding": "gzip" } : {}) });
    const body = new FaultyBody(response, fault, isGzip, this.#countSent);
    const metadata = { resourceVersion: String(page.version), ...(page.next === "" ? {} : { continue: page.next }) };
    for (const piece of format.list(path.type, metadata, page.items)) body.write(piece);
    body.end();
    return undefined;
  }

  #page(path: ResourcePath, query: URLSearchParams): ListPage | StatusOptions {
    const tooLarge = this.#tooLarge(query);
    if (tooLarge !== undefined) return tooLarge;
    const limit = this.switches.hasPages ? Number(query.get("limit") ?? 0) : 0;
    try {
      return this.pages.page(path.type.plural, selectedBy(path, query), limit, query.get("continue") ?? "");
    } catch (error) {
      return { code: 400, message: messageOf(error) };
    }
  }

  #tooLarge(query: URLSearchParams): StatusOptions | undefined {
    const wanted = Number(query.get("resourceVersion") ?? 0);
    if (wanted <= this.store.version) return undefined;
    const message = `Too large resource version: ${wanted}, current: ${this.store.version}`;
    return { code: 504, reason: "Timeout", message, cause: "ResourceVersionTooLarge", retryAfterSeconds: 1 };
  }

  #watch({ query, response, fault, format }: Exchange, path: ResourcePath): StatusOptions | undefined {
    const sendsInitial = query.get("sendInitialEvents") === "true";
    const refusal = this.#refusedOptions(query, sendsInitial) ?? this.#tooLarge(query);
    if (refusal !== undefined) return refusal;
    const version = Number(query.get("resourceVersion") ?? 0);
    const isInitial = version === 0 || sendsInitial;
    const changes = isInitial ? [] : this.store.changesSince(path.type.plural, version);
    const expired = {
      code: 410,
      message: `too old resource version: ${version} (${this.store.oldestVersion(path.type.plural)})`,
    };
    if (changes === undefined && this.switches.refusesOldWatches) return expired;
    response.writeHead(200, { "Content-Type": format.streamType });
    response.flushHeaders();
    const watch = this.#openWatch(path, query, response, fault, format);
    if (changes === undefined) {
      watch.sendError(expired);
      watch.end();
    } else if (isInitial) watch.sendInitial();
    else watch.sendSince(changes);
    if (sendsInitial) watch.sendInitialEnd();
    return undefined;
  }

  #refusedOptions(query: URLSearchParams, sendsInitial: boolean): StatusOptions | undefined {
    const match = query.get("resourceVersionMatch");
    if (!this.switches.hasWatchList && (sendsInitial || match !== null)) {
      const message =
        'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled';
      return { code: 422, message };
    }
    if (sendsInitial === (match === "NotOlderThan")) return undefined;
    return { code: 422, message: "sendInitialEvents and resourceVersionMatch go together" };
  }

  #openWatch(
    path: ResourcePath,
    query: URLSearchParams,
    response: ServerResponse,
    fault: Fault | undefined,
    format: WireFormat,
  ): WatchStream {
    const watch = new WatchStream({
      store: this.store,
      type: path.type,
      isSelected: selectedBy(path, query),
      body: new FaultyBody(response, fault, false, this.#countSent),
      format,
      allowsBookmarks: query.get("allowWatchBookmarks") === "true",
    });
    this.#watches.add(watch);
    const timeoutMs =
      this.switches.watchTimeoutMs ?? Number(query.get("timeoutSeconds") ?? 1800) * this.switches.secondMs;
    const timer = setTimeout(() => watch.end(), timeoutMs);
    response.on("close", () => {
      clearTimeout(timer);
      watch.close();
      this.#watches.delete(watch);
    });
    return watch;
  }

  #write({ body, response }: Exchange, path: ResourcePath, verb: "create" | "patch"): StatusOptions | undefined {
    const object = parseObject(body);
    if (object === undefined) return { code: 400, message: "the body of the request is no JSON object" };
    const { plural } = path.type;
    const name = verb === "create" ? object.metadata.name : (path.name ?? "");
    const { namespace } = path;
    const known = this.store.objects(plural).get(namespace === undefined ? name : `${namespace}/${name}`);
    const { resourceVersion } = object.metadata ?? {};
    if (verb === "patch" && resourceVersion !== undefined && resourceVersion !== known?.object.metadata.resourceVersion)
      return { code: 409, message: `${plural} "${name}" has been modified` };
    if (verb === "create" && known !== undefined) return { code: 409, message: `${plural} "${name}" already exists` };
    if (verb === "patch" && known === undefined) return { code: 404, message: `${plural} "${name}" not found` };
    const stored = this.store.put(
      plural,
      known === undefined
        ? object
        : { ...known.object, ...object, ...merged(known.object.spec, object.spec), metadata: known.object.metadata },
    );
    response.writeHead(verb === "create" ? 201 : 200, { "Content-Type": "application/json" });
    response.end(JSON.stringify(stored));
    return undefined;
  }
}

/** One request and its properties. */
interface Exchange {
  readonly verb: string;
  readonly path: ResourcePath | undefined;
  readonly query: URLSearchParams;
  readonly body: string;
  readonly fault: Fault | undefined;
  readonly format: WireFormat;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** Applies a merge patch: fields that it does not contain stay. */
function merged(spec: unknown, change: unknown): { readonly spec?: object } {
  const areObjects = typeof spec === "object" && typeof change === "object" && spec !== null && change !== null;
  return areObjects ? { spec: { ...spec, ...change } } : {};
}

/** The permissions of `system:node-proxier`, for {@link ServerSwitches.isAllowed}. */
export function nodeProxierRole(types: Readonly<Record<Plural, { readonly proxierVerbs: readonly string[] }>>) {
  return (_user: string, verb: string, plural: Plural): boolean => types[plural].proxierVerbs.includes(verb);
}

function selectedBy(path: ResourcePath, query: URLSearchParams): Predicate {
  const byLabels = labelSelector(query.get("labelSelector") ?? "");
  const byFields = fieldSelector(query.get("fieldSelector") ?? "");
  const { namespace } = path;
  return (object) =>
    (namespace === undefined || object.metadata.namespace === namespace) && byLabels(object) && byFields(object);
}

function verbOf(method: string, query: URLSearchParams, path: ResourcePath | undefined): string {
  if (method === "POST") return "create";
  if (method === "PATCH") return "patch";
  if (method !== "GET") return method.toLowerCase();
  if (path?.name !== undefined) return "get";
  return query.get("watch") === "true" || query.get("watch") === "1" ? "watch" : "list";
}

async function readBody(request: IncomingMessage): Promise<string> {
  let text = "";
  request.setEncoding("utf8");
  for await (const chunk of request) text += String(chunk);
  return text;
}

function parseObject(body: string): ApiObject | undefined {
  try {
    return JSON.parse(body) as ApiObject; // the tests' own objects
  } catch {
    return undefined;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function isAddressInfo(address: string | AddressInfo | null): address is AddressInfo {
  return typeof address === "object" && address !== null;
}
