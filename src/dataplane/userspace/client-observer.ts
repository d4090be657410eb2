/** What clients of one service port meet, as metrics and log lines: a line for each client would drown the log. */

import type { Logger } from "../../logging/logger.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { RelayObserver } from "../../relay/relay.ts";
import type { EndpointConnections } from "./endpoint-connections.ts";

/** The measurements of this mode, one family. */
export interface UserspaceMetrics {
  /** A connection or UDP session reached an endpoint; and when one has ended. */
  opened(protocol: string): void;
  closed(protocol: string): void;
  bytes(protocol: string, direction: "in" | "out", count: number): void;
  dialFailed(protocol: string): void;
  refused(protocol: string): void;
}

interface ClientObserverOptions {
  readonly metrics: UserspaceMetrics;
  readonly connections: EndpointConnections;
  readonly monotonicMs: () => number;
  readonly log: Logger;
}

/** Of refused clients of one service port, one in this time is logged. */
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
