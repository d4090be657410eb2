/**
 * Health-check node ports: one small HTTP answer per Service with externalTrafficPolicy Local, for the load balancers in
 * front of it (reference health.md §14, operation.md §9.5). One manager per family.
 *
 * All listeners hand their connections to one guarded HTTP server: a listener is then a bare socket, cheap by the hundred.
 */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { type Clock, systemClock, type Timer } from "../../../async/clock.ts";
import { Mutex } from "../../../async/mutex.ts";
import type { SyncFailure } from "../../../contract/backend.ts";
import type { ServiceHealthPorts } from "../../../contract/observers.ts";
import type { Logger } from "../../../logging/logger.ts";
import type { IpAddress, IpFamily } from "../../../net/ip.ts";
import { ConnectionGate, serverLimits } from "../http/connection-gate.ts";
import { createGuardedHttp, type GuardedHttp } from "../http/guarded-http.ts";
import { JSON_TYPE, reply } from "../http/http-reply.ts";

/** How long connections of a closed service may still get their (empty) answer. */
const DRAIN_MS = 1_000;
/** Delay before retrying ports that could not be opened: the process that holds one ends, and the next sync may be an hour away. */
const RETRY_MS = 5_000;

export interface ServiceHealthOptions {
  readonly family: IpFamily;
  /** Where to listen: on all addresses of the family, or only on these (see {@link ServiceHealthPorts.setAddresses}). */
  readonly addresses: "all" | readonly IpAddress[];
  /** Whether the proxiers keep up; always true without a health server. */
  isProxyHealthy(): boolean;
  /** Shared by all managers. @default one of its own */
  readonly gate?: ConnectionGate;
  /** For connection time limits and retries. @default the system's */
  readonly clock?: Clock;
  readonly log: Logger;
  /** Called for each service whose port could not be opened, to log it: at each sync, and when the reason has changed. */
  onListenFailure(service: string, port: number, error: Error): void;
}

/** The body for a service's state: indented with tabs, no newline at the end. */
function serviceHealthBody(service: string, localEndpoints: number, serviceProxyHealthy: boolean): string {
  const slash = service.indexOf("/");
  const names = { namespace: service.slice(0, slash), name: service.slice(slash + 1) };
  return JSON.stringify({ service: names, localEndpoints, serviceProxyHealthy }, undefined, "\t");
}

interface ServedOptions extends Pick<ServiceHealthOptions, "family" | "log" | "isProxyHealthy"> {
  readonly http: GuardedHttp;
}

/** The listeners of one service, and the connections that came by them. */
class ServedService {
  readonly service: string;
  readonly port: number;
  /** Its local endpoints. */
  count = 0;
  readonly #options: ServedOptions;
  /** By the address that they listen on. */
  readonly #listeners = new Map<string, Server>();
  readonly #connections = new Set<Socket>();
  #isClosed = false;

  constructor(service: string, port: number, options: ServedOptions) {
    this.service = service;
    this.port = port;
    this.#options = options;
  }

  /** Rejects after trying all addresses, with the first failure. */
  async moveTo(hosts: readonly string[]): Promise<void> {
    const { service, port } = this;
    const { family, log } = this.#options;
    for (const [host, listener] of this.#listeners) {
      if (hosts.includes(host)) continue;
      this.#listeners.delete(host);
      listener.close();
    }
    const failures: unknown[] = [];
    for (const host of hosts) {
      if (this.#listeners.has(host)) continue;
      const listener = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
      try {
        listener.listen({ host, port, ipv6Only: family === "IPv6" });
        await once(listener, "listening");
      } catch (error) {
        failures.push(error);
        continue;
      }
      listener.on("error", (error) => log.error("Healthcheck could not accept a connection", error, { service, port }));
      this.#listeners.set(host, listener);
    }
    if (failures.length > 0) throw failures[0];
  }

  /** Stops accepting; existing connections stay, and their further requests get an empty answer. @returns how many stay. */
  close(): number {
    this.#isClosed = true;
    for (const listener of this.#listeners.values()) listener.close();
    return this.#connections.size;
  }

  cutConnections(): void {
    for (const socket of this.#connections) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#connections.add(socket);
    socket.once("close", () => this.#connections.delete(socket));
    this.#options.http.accept(socket, (_request, response) => this.#answer(response));
  }

  #answer(response: ServerResponse): void {
    if (this.#isClosed) {
      response.writeHead(200, { Connection: "close" });
      response.end();
      return;
    }
    const isHealthy = this.#options.isProxyHealthy();
    const body = serviceHealthBody(this.service, this.count, isHealthy);
    reply(response, this.count > 0 && isHealthy ? 200 : 503, JSON_TYPE, body, {
      "X-Load-Balancing-Endpoint-Weight": String(this.count),
    });
  }
}

/** The manager of one family. Nothing listens until the first {@link ServiceHealthPorts.syncServices}. */
export class ServiceHealth implements ServiceHealthPorts {
  readonly #options: ServiceHealthOptions;
  readonly #clock: Clock;
  readonly #served: ServedOptions;
  #hosts: readonly string[];
  #wanted: ReadonlyMap<string, number> = new Map();
  readonly #services = new Map<string, ServedService>();
  /** By service: what could not be opened. */
  readonly #failed = new Map<string, SyncFailure>();
  /** The latest counts; live. */
  #counts: ReadonlyMap<string, number> = new Map();
  readonly #draining = new Set<ServedService>();
  /** One reconciliation at a time, in the order requested. */
  readonly #mutex = new Mutex();
  #reconciling = 0;
  #isClosed = false;
  #retry: Timer | undefined;

  constructor(options: ServiceHealthOptions) {
    const { family, addresses, gate, clock = systemClock } = options;
    this.#options = options;
    this.#clock = clock;
    this.#hosts = addresses === "all" ? [family === "IPv4" ? "0.0.0.0" : "::"] : addresses;
    const limits = serverLimits(Number.POSITIVE_INFINITY).serviceHealth;
    this.#served = { ...options, http: createGuardedHttp({ gate: gate ?? new ConnectionGate(limits), clock }) };
  }

  async syncServices(ports: ReadonlyMap<string, number>, changed?: ReadonlySet<string>): Promise<void> {
    if (changed !== undefined && this.#wanted === ports && this.#areWithoutPorts(changed, ports)) return;
    await this.#inTurn(async () => {
      this.#wanted = ports;
      await this.#reconcile(
        new Set([...(changed ?? [...this.#services.keys(), ...ports.keys()]), ...this.#failed.keys()]),
      );
    });
  }

  setAddresses(addresses: readonly IpAddress[]): Promise<void> {
    return this.#inTurn(async () => {
      this.#hosts = addresses;
      await this.#reconcile(new Set([...this.#services.keys(), ...this.#wanted.keys()]), true);
    });
  }

  syncEndpoints(counts: ReadonlyMap<string, number>, changed?: ReadonlySet<string>): void {
    this.#counts = counts;
    for (const service of changed ?? this.#services.keys()) {
      const served = this.#services.get(service);
      if (served !== undefined) this.#note(served);
    }
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#retry?.cancel();
    return this.#mutex.run(async () => {
      for (const served of this.#services.values()) served.close();
      for (const served of [...this.#services.values(), ...this.#draining]) served.cutConnections();
      this.#services.clear();
      this.#draining.clear();
    });
  }

  /** The ports that cannot be opened. */
  get failures(): readonly SyncFailure[] {
    return [...this.#failed.values()];
  }

  /** Whether none of these services has a port, open or wanted, and no service has failed: nearly always. */
  #areWithoutPorts(services: ReadonlySet<string>, ports: ReadonlyMap<string, number>): boolean {
    // Ports that are being opened have no entry yet.
    if (this.#failed.size > 0 || this.#reconciling > 0) return false;
    if (this.#services.size === 0 && ports.size === 0) return true;
    for (const service of services) if (ports.has(service) || this.#services.has(service)) return false;
    return true;
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#reconciling += 1;
    return this.#mutex.run(work).finally(() => {
      this.#reconciling -= 1;
    });
  }

  /** Closes everything before opening anything: services may have exchanged their ports. */
  async #reconcile(services: Iterable<string>, isRetry = false): Promise<void> {
    if (this.#isClosed) return;
    const ports = this.#wanted;
    this.#retry?.cancel();
    const affected = [...services].filter((service) => ports.has(service) || this.#services.has(service));
    for (const service of this.#failed.keys()) if (!ports.has(service)) this.#failed.delete(service);
    for (const service of affected) this.#closeIfGone(service, ports.get(service));
    for (const service of affected) {
      // Closed while we waited for another listener: open nothing more.
      if (this.#isClosed) return;
      const port = ports.get(service);
      if (port !== undefined) await this.#bringUp(service, port, isRetry);
    }
    if (this.#failed.size === 0 || this.#isClosed) return;
    this.#retry = this.#clock.setTimer(
      RETRY_MS,
      () => void this.#inTurn(() => this.#reconcile([...this.#failed.keys()], true)),
    );
  }

  #closeIfGone(service: string, port: number | undefined): void {
    const served = this.#services.get(service);
    if (served === undefined || served.port === port) return;
    this.#options.log.v(2, "Closing healthcheck", { service, port: served.port });
    this.#services.delete(service);
    if (served.close() === 0) return;
    this.#draining.add(served);
    setTimeout(() => {
      this.#draining.delete(served);
      served.cutConnections();
    }, DRAIN_MS).unref();
  }

  /** Opens what a service is missing. @param isRetry its failure has been reported. */
  async #bringUp(service: string, port: number, isRetry: boolean): Promise<void> {
    const options = this.#options;
    const known = this.#services.get(service);
    const served = known ?? new ServedService(service, port, this.#served);
    try {
      await served.moveTo(this.#hosts);
      if (known === undefined) {
        options.log.v(2, "Opened healthcheck", { service, port });
        this.#services.set(service, served);
        // There may be no further sync to give its count.
        if (isRetry || this.#failed.has(service)) this.#note(served);
      }
      this.#failed.delete(service);
    } catch (error) {
      if (known === undefined) {
        served.close();
        served.cutConnections();
      }
      const failure = error instanceof Error ? error : new Error(String(error));
      if (!isRetry || this.#failed.get(service)?.reason !== failure.message)
        options.onListenFailure(service, port, failure);
      this.#failed.set(service, { subject: `health-check port ${port} of ${service}`, reason: failure.message });
    }
  }

  #note(served: ServedService): void {
    served.count = this.#counts.get(served.service) ?? 0;
  }
}
