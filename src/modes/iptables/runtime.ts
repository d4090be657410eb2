/** Assembles the iptables mode from the host's tools: reference iptables-operation.md §12. */

import type { ModeRuntime, NodeContext, OpenMode } from "../../contract/dataplane.ts";
import { monitorCanaries } from "../../kernel/iptables/canary-monitor.ts";
import { openNfacct } from "../../kernel/nfacct/nfacct.ts";
import { fileSysctls, type Sysctls } from "../../kernel/sysctl.ts";
import type { Logger } from "../../logging/logger.ts";
import { CHAINS } from "../shared/iptables-rules/chain-names.ts";
import { missingIptables, openIptables } from "../shared/iptables-tools.ts";
import { nodePortDestinations } from "../shared/node-port-destinations.ts";
import { IptablesBackend } from "./backend.ts";
import { defineIptablesMetrics, defineNfacctMetrics } from "./metrics.ts";
import { planConfigOf } from "./plan-options.ts";

const ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet";
const TCP_BE_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal";

/** Allows routing of packets to 127/8. */
async function routeLocalhost(sysctls: Sysctls, log: Logger): Promise<void> {
  if ((await sysctls.read(ROUTE_LOCALNET)) === 1) return;
  log.info(
    "Setting route_localnet=1 to allow node-ports on localhost; to change this either disable iptables.localhostNodePorts (--iptables-localhost-nodeports) or set nodePortAddresses (--nodeport-addresses) to filter loopback addresses",
  );
  await sysctls.write(ROUTE_LOCALNET, 1);
}

/** Liberal connection tracking marks no packet INVALID, so nothing needs dropping. */
async function isConntrackLiberal(sysctls: Sysctls, log: Logger): Promise<boolean> {
  const isLiberal = (await sysctls.read(TCP_BE_LIBERAL).catch(() => 0)) !== 0;
  if (isLiberal) log.info("nf_conntrack_tcp_be_liberal set, not installing DROP rules for INVALID packets");
  return isLiberal;
}

/**
 * The kernel's accounting objects, if supported; the first full sync creates each of them. They belong to the network
 * namespace, so both families share them, and the metrics read them once.
 */
async function openCounters({ metrics, log }: NodeContext) {
  const counters = await openNfacct(log);
  if (counters !== undefined) defineNfacctMetrics(metrics, (name) => counters.packets(name), log);
  return counters;
}

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, clock } = node;
  const metricsOf = defineIptablesMetrics(node.metrics);
  const sysctls = fileSysctls();
  const counters = await openCounters(node);
  return {
    async backendFor(context) {
      const { family, nodePortAddresses, log } = context;
      const planConfig = planConfigOf(config, context, await isConntrackLiberal(sysctls, log));
      if (planConfig.localhostNodePorts) await routeLocalhost(sysctls, log);
      const iptables = await openIptables(family, log);
      return new IptablesBackend({
        config: planConfig,
        iptables,
        counters,
        nodePortIPs: () =>
          nodePortDestinations(
            nodePortAddresses,
            "Failed to get node IP addresses matching nodeport cidrs, services with nodeport may not work",
            log,
          ),
        metrics: metricsOf(family),
        monitor: (isIntact, onLost, signal) =>
          monitorCanaries(
            { iptables, chain: CHAINS.canary, intervalMs: config.syncPeriodMs, isIntact, onLost, log, clock },
            signal,
          ),
        checkPeriodMs: config.syncPeriodMs,
        log,
      });
    },
    async close() {
      await counters?.close();
    },
  };
}

export const iptablesRuntime: ModeRuntime = {
  unsupported: (family) => missingIptables(family, "tools"),
  open,
};
