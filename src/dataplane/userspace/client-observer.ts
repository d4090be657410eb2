/** Counts and logs the clients of one service port; a log line for each client would drown the log. */
import type { Logger } from "../../logging/logger.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { RelayObserver } from "../../relay/relay.ts";
import type { UserspaceMetrics } from "./metrics.ts";

interface ClientObserverOptions {
  readonly metrics: UserspaceMetrics;
  readonly monotonicMs: () => number;
  readonly log: Logger;
}

/** One refused client of a service port is logged in this time. */
const LOG_INTERVAL_MS = 10_000;

export function observeClients(name: ServicePortName, options: ClientObserverOptions): RelayObserver {
  const { metrics, monotonicMs, log } = options;
  const { protocol } = name;
  let quietUntilMs = Number.NEGATIVE_INFINITY;
  let unsaid = 0;
  return {
    opened: () => metrics.opened(protocol),
    closed: () => metrics.closed(protocol),
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
