/**
 * Assembles the ipvs mode from the kernel's netlink interfaces and the host's iptables tools; the programs `ipvsadm`,
 * `ipset` and `ip` are not needed. Reference ipvs.md §1, §10.
 */

import type { ModeRuntime, NodeContext, OpenMode } from "../../contract/dataplane.ts";
import type { IptablesTable } from "../../kernel/iptables/iptables.ts";
import { kernelRelease, parseKernelVersion } from "../../kernel/kernel-version.ts";
import type { Links } from "../../kernel/route/links.ts";
import { openLinks } from "../../kernel/route/netlink-links.ts";
import { fileSysctls } from "../../kernel/sysctl.ts";
import { withLoggedCalls } from "../../logging/logged-calls.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { defineRestoreMetrics } from "../shared/iptables-metrics.ts";
import { isIptablesChain } from "../shared/iptables-rules/remove-rules.ts";
import { missingIptables, openIptables } from "../shared/iptables-tools.ts";
import { IpvsBackend } from "./backend.ts";
import { excludedPrefixes, schedulerOf } from "./config.ts";
import type { Ipset } from "./ipset/ipset.ts";
import { openIpset } from "./ipset/netlink-ipset.ts";
import type { Ipvs } from "./kernel/ipvs.ts";
import { openIpvs } from "./kernel/open-ipvs.ts";
import { planConfigOf } from "./node-facts.ts";
import { probeScheduler, setIpvsSysctls, setSysctls, setTimeouts } from "./node-settings.ts";
import { CHAINS_OF } from "./plan-rules.ts";

/** What both families share: sockets, the device and the node's parameters. */
interface Shared {
  readonly ipvs: Ipvs;
  readonly ipset: Ipset;
  readonly links: Links;
  readonly restoreSettings: () => Promise<void>;
}

/** Checks the kernel and prepares the node. Throws an Error that says what is missing. */
async function prepareNode({ config, log }: NodeContext): Promise<Shared> {
  const { scheduler, strictARP, tcpTimeoutMs, tcpFinTimeoutMs, udpTimeoutMs } = config.ipvs;
  if (scheduler === "") log.info("IPVS scheduler not specified, use rr by default");
  const kernel = await openKernel(schedulerOf(config.ipvs), log);
  const sysctls = fileSysctls();
  const settings = { strictARP, kernelVersion: parseKernelVersion(await kernelRelease()) };
  await setSysctls(sysctls, settings, log);
  const [tcp = 0, tcpFin = 0, udp = 0] = [tcpTimeoutMs, tcpFinTimeoutMs, udpTimeoutMs].map(wholeSeconds);
  const timeouts = async (): Promise<void> => {
    if (tcp + tcpFin + udp > 0) await setTimeouts(kernel.ipvs, { tcp, tcpFin, udp }, log);
  };
  await timeouts();
  return {
    ...kernel,
    async restoreSettings() {
      // Any request to IPVS loads its module if needed.
      await kernel.ipvs.timeouts();
      await setIpvsSysctls(sysctls, settings, silentLogger);
      await timeouts();
    },
  };
}

const wholeSeconds = (ms: number): number => Math.floor(ms / 1000);

async function openKernel(scheduler: string, log: Logger): Promise<Omit<Shared, "restoreSettings">> {
  try {
    const ipvs = withLoggedCalls<Ipvs>(await openIpvs({ log }), ["apply"], "Running ipvs operations", log);
    const ipset = withLoggedCalls<Ipset>(openIpset(), ["ensure", "apply", "destroy"], "Running ipset operations", log);
    await probeIpset(ipset);
    await probeScheduler(ipvs, scheduler);
    return { ipvs, ipset, links: openLinks() };
  } catch (error) {
    throw new Error(`can't use the IPVS proxier: ${messageOf(error)}`, { cause: error });
  }
}

async function probeIpset(ipset: Ipset): Promise<void> {
  try {
    await ipset.sets();
  } catch (error) {
    throw new Error(
      `the kernel has no IP sets (${messageOf(error)}): load the module ip_set (modprobe ip_set), or choose another proxy mode`,
      { cause: error },
    );
  }
}

async function open(node: NodeContext): Promise<OpenMode> {
  const { config } = node;
  const metricsOf = defineRestoreMetrics(node.metrics);
  const kernel = await prepareNode(node);
  return {
    async backendFor(context) {
      const { family, nodePortAddresses, log } = context;
      const iptables = await openIptables(family, log);
      return new IpvsBackend({
        config: planConfigOf(config, context),
        ...kernel,
        iptables,
        nodePortAddresses,
        excludeCIDRs: excludedPrefixes(config.ipvs),
        metrics: metricsOf(family),
        verifyPeriodMs: config.syncPeriodMs,
        clock: node.clock,
        log,
      });
    },
    async close() {
      await Promise.all([kernel.ipvs.close(), kernel.ipset.close(), kernel.links.close()]);
    },
  };
}

/** Chains that are compared with the plan, and those that the iptables mode may have left. */
function isOwnChain(table: IptablesTable, chain: string): boolean {
  const own: readonly string[] = table === "mangle" ? [] : CHAINS_OF[table];
  return own.includes(chain) || isIptablesChain(table, chain);
}

async function missingInKernel(): Promise<string | undefined> {
  try {
    await (await openIpvs({ log: silentLogger })).close();
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

export const ipvsRuntime: ModeRuntime = {
  unsupported: (family) => missingIptables(family, "tables", isOwnChain),
  missingInKernel,
  open,
};
