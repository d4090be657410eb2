/**
 * Health-check node ports: one small HTTP answer per Service with externalTrafficPolicy Local, for the load balancers in
 * front of it (reference health.md §14, operation.md §9.5). One manager per family.
 *
 * All listeners hand their connections to one guarded HTTP server: a listener is then a bare socket, cheap by the hundred.
 */
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { type Clock, systemClock, type Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { SyncFailure } from "../../sync/backend.ts";
import type { ServiceHealthPorts } from "../../sync/observers.ts";
import { ConnectionGate, serverLimits } from "../http/connection-gate.ts";
import { createGuardedHttp } from "../http/guarded-http.ts";
import { JSON_TYPE, reply } from "../http/http-reply.ts";
import type { HttpHandler } from "../http/routes.ts";

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
  /** Called after each attempt with the ports that are not open; an empty list if all are. */
  onFailures?(failures: readonly SyncFailure[]): void;
}

interface Entry {
  readonly service: string;
  readonly port: number;
  /** By the address that they listen on. */
  readonly listeners: Map<string, Server>;
  readonly connections: Set<Socket>;
  count: number;
  isClosed: boolean;
}

/** The body for a service's state: indented with tabs, no newline at the end. */
function serviceHealthBody(service: string, localEndpoints: number, serviceProxyHealthy: boolean): string {
  const slash = service.indexOf("/");
  const names = { namespace: service.slice(0, slash), name: service.slice(slash + 1) };
  return JSON.stringify({ service: names, localEndpoints, serviceProxyHealthy }, undefined, "\t");
}

/** Stops accepting; existing connections stay, and their further requests get an empty answer. */
function closeListeners(entry: Entry): void {
  entry.isClosed = true;
  for (const listener of entry.listeners.values()) listener.close();
}

function cutConnections(entry: Entry): void {
  for (const socket of entry.connections) socket.destroy();
}

/** Makes the manager of one family. Nothing listens until the first {@link ServiceHealthPorts.syncServices}. */
export function createServiceHealth(options: ServiceHealthOptions): ServiceHealthPorts {
  const { family, log } = options;
  let hosts: readonly string[] =
    options.addresses === "all" ? [family === "IPv4" ? "0.0.0.0" : "::"] : options.addresses;
  let wanted: ReadonlyMap<string, number> = new Map();
  const entries = new Map<string, Entry>();
  /** By service: what could not be opened. */
  const failed = new Map<string, SyncFailure>();
  /** The latest counts; live. */
  let known: ReadonlyMap<string, number> = new Map();
  const draining = new Set<Entry>();
  /** One reconciliation at a time, in the order requested. */
  const mutex = new Mutex();
  let reconciling = 0;
  let isClosed = false;
  let retry: Timer | undefined;

  const clock = options.clock ?? systemClock;
  const http = createGuardedHttp({
    gate: options.gate ?? new ConnectionGate(serverLimits(Number.POSITIVE_INFINITY).serviceHealth),
    clock,
  });

  const answerOf =
    (entry: Entry): HttpHandler =>
    (_request, response) => {
      if (entry.isClosed) {
        response.writeHead(200, { Connection: "close" });
        response.end();
        return;
      }
      const isHealthy = options.isProxyHealthy();
      const body = serviceHealthBody(entry.service, entry.count, isHealthy);
      reply(response, entry.count > 0 && isHealthy ? 200 : 503, JSON_TYPE, body, {
        "X-Load-Balancing-Endpoint-Weight": String(entry.count),
      });
    };

  function accept(entry: Entry, socket: Socket): void {
    entry.connections.add(socket);
    socket.once("close", () => entry.connections.delete(socket));
    http.accept(socket, answerOf(entry));
  }

  function note(entry: Entry): void {
    entry.count = known.get(entry.service) ?? 0;
  }

  /** Moves a service to the current addresses. Rejects after trying all, with the first failure. */
  async function moveListeners(entry: Entry): Promise<void> {
    const { service, port } = entry;
    for (const [host, listener] of entry.listeners) {
      if (hosts.includes(host)) continue;
      entry.listeners.delete(host);
      listener.close();
    }
    const failures: unknown[] = [];
    for (const host of hosts) {
      if (entry.listeners.has(host)) continue;
      const listener = createServer({ allowHalfOpen: true }, (socket) => accept(entry, socket));
      try {
        listener.listen({ host, port, ipv6Only: family === "IPv6" });
        await once(listener, "listening");
      } catch (error) {
        failures.push(error);
        continue;
      }
      listener.on("error", (error) => log.error("Healthcheck could not accept a connection", error, { service, port }));
      entry.listeners.set(host, listener);
    }
    if (failures.length > 0) throw failures[0];
  }

  function drain(entry: Entry): void {
    closeListeners(entry);
    if (entry.connections.size === 0) return;
    draining.add(entry);
    setTimeout(() => {
      draining.delete(entry);
      cutConnections(entry);
    }, DRAIN_MS).unref();
  }

  function closeIfGone(service: string, port: number | undefined): void {
    const entry = entries.get(service);
    if (entry === undefined || entry.port === port) return;
    log.v(2, "Closing healthcheck", { service, port: entry.port });
    entries.delete(service);
    drain(entry);
  }

  /** Opens what a service is missing. @param isRetry its failure has been reported. */
  async function bringUp(service: string, port: number, isRetry: boolean): Promise<void> {
    const served = entries.get(service);
    const nothing = { listeners: new Map(), connections: new Set<Socket>(), count: 0, isClosed: false };
    const entry: Entry = served ?? { service, port, ...nothing };
    try {
      await moveListeners(entry);
      if (served === undefined) {
        log.v(2, "Opened healthcheck", { service, port });
        entries.set(service, entry);
        // There may be no further sync to give its count.
        if (isRetry || failed.has(service)) note(entry);
      }
      failed.delete(service);
    } catch (error) {
      if (served === undefined) {
        closeListeners(entry);
        cutConnections(entry);
      }
      const failure = error instanceof Error ? error : new Error(String(error));
      if (!isRetry || failed.get(service)?.reason !== failure.message) options.onListenFailure(service, port, failure);
      failed.set(service, { subject: `health-check port ${port} of ${service}`, reason: failure.message });
    }
  }

  function inTurn(work: () => Promise<void>): Promise<void> {
    reconciling += 1;
    return mutex.run(work).finally(() => {
      reconciling -= 1;
    });
  }

  /** Closes everything before opening anything: services may have exchanged their ports. */
  async function reconcile(
    ports: ReadonlyMap<string, number>,
    services: Iterable<string>,
    isRetry = false,
  ): Promise<void> {
    retry?.cancel();
    const affected = [...services].filter((service) => ports.has(service) || entries.has(service));
    for (const service of failed.keys()) if (!ports.has(service)) failed.delete(service);
    for (const service of affected) closeIfGone(service, ports.get(service));
    for (const service of affected) {
      // Closed while we waited for another listener: open nothing more.
      if (isClosed) return;
      const port = ports.get(service);
      if (port !== undefined) await bringUp(service, port, isRetry);
    }
    options.onFailures?.([...failed.values()]);
    if (failed.size > 0 && !isClosed) retry = clock.setTimer(RETRY_MS, () => void inTurn(tryAgain));
  }

  async function tryAgain(): Promise<void> {
    if (!isClosed) await reconcile(wanted, [...failed.keys()], true);
  }

  /** Whether none of these services has a port, open or wanted, and no service has failed: nearly always. */
  function areWithoutPorts(services: ReadonlySet<string>, ports: ReadonlyMap<string, number>): boolean {
    // Ports that are being opened have no entry yet.
    if (failed.size > 0 || reconciling > 0) return false;
    if (entries.size === 0 && ports.size === 0) return true;
    for (const service of services) if (ports.has(service) || entries.has(service)) return false;
    return true;
  }

  return {
    async syncServices(ports, changed) {
      if (changed !== undefined && wanted === ports && areWithoutPorts(changed, ports)) return;
      await inTurn(async () => {
        wanted = ports;
        if (isClosed) return;
        await reconcile(ports, new Set([...(changed ?? [...entries.keys(), ...ports.keys()]), ...failed.keys()]));
      });
    },
    setAddresses(addresses) {
      return inTurn(async () => {
        hosts = addresses;
        if (!isClosed) await reconcile(wanted, new Set([...entries.keys(), ...wanted.keys()]), true);
      });
    },
    syncEndpoints(counts, changed) {
      known = counts;
      for (const service of changed ?? entries.keys()) {
        const entry = entries.get(service);
        if (entry !== undefined) note(entry);
      }
    },
    close() {
      isClosed = true;
      retry?.cancel();
      return mutex.run(async () => {
        for (const entry of entries.values()) closeListeners(entry);
        for (const entry of [...entries.values(), ...draining]) cutConnections(entry);
        entries.clear();
        draining.clear();
      });
    },
  };
}
