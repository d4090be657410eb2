/**
 * The userspace mode, put together: sockets, a balancer for each family, and what leads clients to them on this system.
 * Reference userspace.md §1.1, §1.10, §2.
 */
import { shareOfServers } from "../../kernel/share-of-servers.ts";
import { NodeRelays } from "../../relay/node-relays.ts";
import type { ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import { defineRestoreMetrics, defineRuleCountMetrics } from "../shared/iptables-metrics.ts";
import { UserspaceBackend } from "./backend.ts";
import { Balancer } from "./balancer.ts";
import { observeClients } from "./client-observer.ts";
import { userspaceHost } from "./host.ts";
import { defineUserspaceMetrics } from "./metrics.ts";
import { ServiceRelays } from "./service-relays.ts";

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, clock } = node;
  const host = await userspaceHost();
  const clientMetricsOf = defineUserspaceMetrics(node.metrics);
  const openFiles = host.openFiles(node.log);
  // Both families share the process's descriptors.
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
  cleanUp: async (log) => await (await userspaceHost()).cleanUp(log),
  defineMetrics(families) {
    defineRestoreMetrics(families);
    defineRuleCountMetrics(families);
    defineUserspaceMetrics(families);
  },
};
