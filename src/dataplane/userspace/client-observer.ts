/** Counts and logs the clients of one service port; a log line for each client would drown the log. */
import type { Logger } from "../../logging/logger.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { Destination, RelayObserver } from "../../relay/relay.ts";
import type { UserspaceMetrics } from "./metrics.ts";

interface ClientObserverOptions {
  readonly metrics: UserspaceMetrics;
  readonly connections: EndpointConnections;
  readonly monotonicMs: () => number;
  readonly log: Logger;
}

/** One refused client of a service port is logged in this time. */
const LOG_INTERVAL_MS = 10_000;

export function observeClients(name: ServicePortName, options: ClientObserverOptions): RelayObserver {
  const { metrics, connections, monotonicMs, log } = options;
  const { protocol } = name;
  let quietUntilMs = Number.NEGATIVE_INFINITY;
  let unsaid = 0;
  return {
    opened(destination) {
      metrics.opened(protocol);
      connections.opened(name.key, destination);
    },
    closed(destination) {
      metrics.closed(protocol);
      connections.closed(name.key, destination);
    },
    bytes: (direction, count) => metrics.bytes(protocol, direction, count),
    dialFailed({ address, port }, reason) {
      metrics.dialFailed(protocol);
      log.v(3, "Dial failed", { service: name.text, endpoint: joinHostPort(address, port), reason });
    },
    refused(client, reason) {
      metrics.refused(protocol);
      const nowMs = monotonicMs();
      unsaid += 1;
      if (nowMs < quietUntilMs) return;
      const facts = {
        service: name.text,
        protocol,
        client: joinHostPort(client.address, client.port),
        clients: unsaid,
      };
      log.error("Failed to connect to an endpoint", new Error(reason), facts);
      quietUntilMs = nowMs + LOG_INTERVAL_MS;
      unsaid = 0;
    },
  };
}

/** Open connections and sessions by service port and endpoint. */
export class EndpointConnections {
  readonly #counts = new Map<string, Map<string, number>>();

  /** @param key of the service port. */
  opened(key: string, destination: Destination): void {
    const counts = this.#counts.get(key) ?? new Map<string, number>();
    this.#counts.set(key, counts);
    const text = textOf(destination);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }

  closed(key: string, destination: Destination): void {
    const counts = this.#counts.get(key);
    const text = textOf(destination);
    const count = (counts?.get(text) ?? 0) - 1;
    if (count > 0) counts?.set(text, count);
    else counts?.delete(text);
    if (counts?.size === 0) this.#counts.delete(key);
  }

  /** By `ip:port`; endpoints without any are not in it. */
  of(key: string): ReadonlyMap<string, number> {
    return this.#counts.get(key) ?? NONE;
  }
}

const NONE: ReadonlyMap<string, number> = new Map();

const textOf = ({ address, port }: Destination): string => joinHostPort(address, port);
