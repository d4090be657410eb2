/**
 * Assembles the userspace mode: sockets, a balancer for each family, and what leads clients to them on this system.
 * Reference userspace.md §1.1, §1.10, §2.
 */

import type { ModeRuntime, NodeContext, OpenMode } from "../../contract/dataplane.ts";
import { shareOfServers } from "../../kernel/share-of-servers.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { joinHostPort } from "../../net/ip.ts";
import { NodeRelays } from "../../relay/node-relays.ts";
import type { RelayObserver } from "../../relay/relay.ts";
import { UserspaceBackend } from "./backend.ts";
import { Balancer } from "./balancer.ts";
import { userspaceHost } from "./host.ts";
import { defineUserspaceMetrics, type UserspaceMetrics } from "./metrics.ts";
import { ServiceRelays } from "./service-relays.ts";

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, clock } = node;
  const host = await userspaceHost();
  const clientMetricsOf = defineUserspaceMetrics(node.metrics);
  const openFiles = host.openFiles(node.log);
  // Both families share the descriptors of the process.
  const relays = new NodeRelays({ log: node.log, fileLimit: openFiles - shareOfServers(openFiles) });
  const { frontFor } = await host.open(node);
  return {
    async backendFor(context) {
      const { family, nodePortAddresses, log } = context;
      const balancer = new Balancer({ random: Math.random, nowMs: () => clock.monotonicMs() });
      const clients = { metrics: clientMetricsOf(family), monotonicMs: () => clock.monotonicMs(), log };
      const sockets = new ServiceRelays({
        relays,
        balancer,
        udpIdleTimeoutMs: config.userspace.udpIdleTimeoutMs,
        observe: (name) => observeClients(name, clients),
      });
      let backend: UserspaceBackend | undefined;
      const retry = (): void => backend?.retry();
      backend = new UserspaceBackend({
        family,
        nodeName: node.nodeName,
        balancer,
        sockets,
        ...(await frontFor(context, { sockets, relays, retry })),
        nodePortAddresses,
        hashSeed: config.balancing.seed,
        checkIntervalMs: config.syncPeriodMs,
        drainTimeoutMs: config.userspace.drainTimeoutMs,
        clock,
        log,
      });
      return backend;
    },
    // Watches and sockets end with the backends.
    async close() {},
  };
}

export const userspaceRuntime: ModeRuntime = {
  unsupported: async (family, config) => await (await userspaceHost()).unsupported(family, config),
  open,
};

interface ClientObserverOptions {
  readonly metrics: UserspaceMetrics;
  readonly monotonicMs: () => number;
  readonly log: Logger;
}

/** At most one refused client of a service port is logged per interval. */
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
