/** The iptables mode, put together from the host's tools: reference iptables.md §12. */
import { type CounterStore, IptablesBackend } from "../backends/iptables/backend.ts";
import { CHAINS } from "../backends/iptables/chain-names.ts";
import { cleanUpIptables } from "../backends/iptables/cleanup.ts";
import { monitorCanaries } from "../kernel/iptables/canary-monitor.ts";
import { createIptables, isIptablesPresent } from "../kernel/iptables/exec-iptables.ts";
import { openNfacct } from "../kernel/nfacct/netlink-nfacct.ts";
import { fileSysctls, type Sysctls } from "../kernel/sysctl.ts";
import type { Logger } from "../logging/logger.ts";
import type { IpFamily } from "../net/ip.ts";
import { iptablesTools, missingIptables } from "./iptables-tools.ts";
import { nodePortDestinations } from "./node-port-destinations.ts";
import type { BackendContext, ProxyModeFactory } from "./proxy-modes.ts";

const ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet";
const TCP_BE_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal";
const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];

/** Lets packets to 127/8 be routed, once, if node ports shall answer there; false where that does not apply. */
async function prepareLocalhostNodePorts(context: BackendContext, sysctls: Sysctls): Promise<boolean> {
  const { config, family, log, nodePortAddresses } = context;
  if (family !== "IPv4" || !config.iptables.localhostNodePorts || !nodePortAddresses.containsLoopback) return false;
  if ((await sysctls.read(ROUTE_LOCALNET)) !== 1) {
    log.info(
      "Setting route_localnet=1 to allow node-ports on localhost; to change this either disable iptables.localhostNodePorts (--iptables-localhost-nodeports) or set nodePortAddresses (--nodeport-addresses) to filter loopback addresses",
    );
    await sysctls.write(ROUTE_LOCALNET, 1);
  }
  return true;
}

/** Liberal connection tracking calls nothing invalid, so nothing must be dropped for it. */
async function isConntrackLiberal(sysctls: Sysctls, log: Logger): Promise<boolean> {
  try {
    const isLiberal = (await sysctls.read(TCP_BE_LIBERAL)) !== 0;
    if (isLiberal) log.info("nf_conntrack_tcp_be_liberal set, not installing DROP rules for INVALID packets");
    return isLiberal;
  } catch {
    return false;
  }
}

/**
 * The kernel's accounting objects, if it has them; each is created with the first full sync. They are the namespace's,
 * so both families share them, and the metrics read them once.
 */
async function openCounters({ family, metrics, log }: BackendContext): Promise<CounterStore | undefined> {
  const counters = await openNfacct(log);
  if (counters !== undefined && family === "IPv4") metrics.collectNfacct((name) => counters.packets(name), log);
  return counters;
}

async function createBackend(context: BackendContext): Promise<IptablesBackend> {
  const { config, family, metrics, nodePortAddresses, log } = context;
  const sysctls = fileSysctls();
  const localhostNodePorts = await prepareLocalhostNodePorts(context, sysctls);
  const conntrackLiberal = await isConntrackLiberal(sysctls, log);
  const iptables = await createIptables(iptablesTools(family, log));
  const counters = await openCounters(context);
  return new IptablesBackend({
    config: {
      family,
      nodeName: context.nodeName,
      nodeIP: context.nodeIP,
      masqueradeMark: 2 ** config.iptables.masqueradeBit,
      masqueradeAll: config.masqueradeAll,
      detector: context.detector,
      localhostNodePorts,
      hasRandomFully: iptables.hasRandomFully,
      conntrackLiberal,
    },
    iptables,
    counters,
    nodePortIPs: () =>
      nodePortDestinations(
        nodePortAddresses,
        "Failed to get node IP addresses matching nodeport cidrs, services with nodeport may not work",
        log,
      ),
    metrics: metrics.iptablesMetrics(family),
    monitor: (isIntact, onLost, signal) =>
      monitorCanaries(
        {
          iptables,
          chain: CHAINS.canary,
          intervalMs: config.syncPeriodMs,
          isIntact,
          onLost,
          log,
          clock: context.clock,
        },
        signal,
      ),
    log,
  });
}

export const iptablesMode: ProxyModeFactory = {
  startMessage: "Using iptables Proxier",
  unavailableText: "iptables is not available on this host ",
  unsupported: missingIptables,
  createBackend,
  isReplacedBy: (mode) => mode === "nftables" || mode === "userspace",
  async cleanUp(log) {
    let succeeded = true;
    for (const family of FAMILIES) {
      if (!(await isIptablesPresent(iptablesTools(family, log)))) continue;
      succeeded = (await cleanUpIptables(await createIptables(iptablesTools(family, log)), log)) && succeeded;
    }
    return succeeded;
  },
};
