/**
 * The userspace mode, put together: sockets, a balancer for each family, and the host's iptables tools, or no rules at all.
 * Reference userspace.md §1.1, §1.10, §2.
 */
import { networkInterfaces } from "node:os";
import type { Clock } from "../../async/clock.ts";
import { raiseFileLimit } from "../../kernel/file-limit.ts";
import { createIptables } from "../../kernel/iptables/exec-iptables.ts";
import { execProcess } from "../../kernel/process.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { shareOfServers } from "../../kernel/share-of-servers.ts";
import type { Logger } from "../../logging/logger.ts";
import { type IpAddress, isLinkLocalV6, isLoopback, parseIpAddress } from "../../net/ip.ts";
import { ANY_PORT, parsePortRange } from "../../net/port-range.ts";
import { NodeRelays } from "../../relay/node-relays.ts";
import type { Relays } from "../../relay/relay.ts";
import type { FamilyContext, ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import {
  defineRestoreMetrics,
  defineRuleCountMetrics,
  type RestoreMetrics,
  type RuleCountMetrics,
} from "../shared/iptables-metrics.ts";
import { cleanUpFamilies, iptablesTools, missingIptables } from "../shared/iptables-tools.ts";
import { UserspaceBackend } from "./backend.ts";
import { Balancer } from "./balancer.ts";
import { cleanUpPortals, isPortalChain } from "./cleanup.ts";
import { observeClients } from "./client-observer.ts";
import { HostListeners } from "./host-listeners.ts";
import { listenAddressOf } from "./listen-address.ts";
import type { Listeners } from "./listeners.ts";
import { defineUserspaceMetrics } from "./metrics.ts";
import { NetshAssigner } from "./netsh-assigner.ts";
import { DEFAULT_INTERFACE } from "./plan-netsh.ts";
import { PortAllocator } from "./port-allocator.ts";
import { knowsBridgePorts, PortalRules } from "./portal-rules.ts";
import { RedirectListeners } from "./redirect-listeners.ts";
import { ServiceRelays } from "./service-relays.ts";
import { staleFlowsOf } from "./stale-flows.ts";

/** Both families share the process's descriptors. */
function openRelays(log: Logger): Relays {
  const { limit, problem } = raiseFileLimit();
  if (problem !== undefined) log.error("The number of connections is limited", new Error(problem));
  log.v(2, "Raised the limit of open files", { limit });
  return new NodeRelays({ log, fileLimit: limit - shareOfServers(limit) });
}

/** The node's address, or any other than loopback that the host has. */
async function hostAddressOf({ family, nodeIP, log }: FamilyContext): Promise<IpAddress> {
  if (!isLoopback(nodeIP)) return nodeIP;
  const usable = (ip: IpAddress) => !isLoopback(ip) && !isLinkLocalV6(ip);
  const found = (await localAddresses(family)).find(usable);
  if (found === undefined) log.info("This host has no address of the family but loopback", { ipFamily: family });
  return found ?? nodeIP;
}

interface FrontParts {
  readonly node: NodeContext;
  readonly metrics: RestoreMetrics & RuleCountMetrics;
  readonly sockets: ServiceRelays;
  readonly relays: Relays;
  readonly retry: () => void;
}

async function redirectListeners(context: FamilyContext, parts: FrontParts): Promise<Listeners> {
  const { node, metrics, sockets, relays, retry } = parts;
  const { config, conntrack } = node;
  const { family, log } = context;
  const listenAddress = listenAddressOf(config.bindAddress, family);
  const range = parsePortRange(config.userspace.portRange);
  const ports = new PortAllocator({
    range: range.ok ? range.range : ANY_PORT, // validation has refused others
    random: Math.random,
    onPortFree: retry,
  });
  const iptables = await createIptables(iptablesTools(family, log));
  const hasBridgePorts = await knowsBridgePorts(iptables);
  const rules = new PortalRules({ iptables, metrics, log });
  await rules.start();
  if (!hasBridgePorts) log.info("The kernel has no xt_physdev: external IPs are served to pods as to everybody");
  return new RedirectListeners({
    family,
    plan: {
      listenAddress,
      hostAddress: await hostAddressOf(context),
      knowsBridgePorts: hasBridgePorts,
      detector: context.detector,
    },
    rules,
    sockets,
    relays,
    ports,
    staleFlows: staleFlowsOf(conntrack, family, log),
    log,
  });
}

function windowsAddresses(): readonly IpAddress[] {
  const all = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
  return all.map(({ address }) => parseIpAddress(address)).filter((address) => address !== undefined);
}

function hostListeners({ family, detector, log }: FamilyContext, clock: Clock, sockets: ServiceRelays): Listeners {
  if (process.platform !== "win32") return new HostListeners({ family, sockets, detector, log });
  const interfaceName = process.env.INTERFACE_TO_ADD_SERVICE_IP ?? DEFAULT_INTERFACE;
  const hostAddresses = async () => windowsAddresses();
  const assigner = new NetshAssigner({ interfaceName, hostAddresses, exec: execProcess, clock, log });
  return new HostListeners({ family, sockets, assigner, detector, log });
}

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, clock } = node;
  // Rules of an earlier run would lead to nothing.
  if (config.userspace.rules === "none") await cleanUp(node.log);
  const clientMetricsOf = defineUserspaceMetrics(node.metrics);
  const restoreMetricsOf = defineRestoreMetrics(node.metrics);
  const ruleCountMetricsOf = defineRuleCountMetrics(node.metrics);
  const relays = openRelays(node.log);
  const isWindows = process.platform === "win32";
  const hasRules = config.userspace.rules === "iptables" && !isWindows;
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
      const parts = {
        node,
        metrics: { ...restoreMetricsOf(family), ...ruleCountMetricsOf(family) },
        sockets,
        relays,
        retry,
      };
      backend = new UserspaceBackend({
        family,
        nodeName: node.nodeName,
        balancer,
        sockets,
        listeners: hasRules ? await redirectListeners(context, parts) : hostListeners(context, clock, sockets),
        nodePortAddresses,
        hostAddresses: () => (isWindows ? Promise.resolve(windowsAddresses()) : localAddresses(family)),
        watchHostAddresses: async (onChange, signal) => {
          if (!isWindows) await node.addressWatch.watch(onChange, signal);
        },
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

function cleanUp(log: Logger): Promise<boolean> {
  return cleanUpFamilies(isPortalChain, (iptables) => cleanUpPortals(iptables, log), log);
}

export const userspaceRuntime: ModeRuntime = {
  async unsupported(family, { userspace }) {
    if (userspace.rules === "none" || process.platform === "win32") return undefined;
    return await missingIptables(family);
  },
  open,
  cleanUp,
  defineMetrics(families) {
    defineRestoreMetrics(families);
    defineRuleCountMetrics(families);
    defineUserspaceMetrics(families);
  },
};
