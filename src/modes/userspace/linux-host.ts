/** Linux: with or without iptables rules that lead clients to the proxy's sockets. Reference userspace.md §1.1, §1.10. */

import type { FamilyContext, NodeContext } from "../../contract/dataplane.ts";
import { raiseFileLimit } from "../../kernel/file-limit.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import type { IpAddress } from "../../net/ip.ts";
import { ANY_PORT, parsePortRange } from "../../net/port-range.ts";
import {
  defineRestoreMetrics,
  defineRuleCountMetrics,
  type RestoreMetrics,
  type RuleCountMetrics,
} from "../shared/iptables-metrics.ts";
import { missingIptables, openIptables } from "../shared/iptables-tools.ts";
import { cleanUp } from "./cleanup.ts";
import type { Front, FrontParts, Listeners, UserspaceHost } from "./host.ts";
import { HostListeners } from "./host-listeners.ts";
import { hostAddressAmong, listenAddressOf, type ProxyAddresses } from "./listen-address.ts";
import { PortAllocator } from "./port-allocator.ts";
import { knowsBridgePorts, PortalRules } from "./portal-rules.ts";
import { RedirectListeners } from "./redirect-listeners.ts";
import { staleFlowsOf } from "./stale-flows.ts";

interface RuleParts extends FrontParts {
  readonly node: NodeContext;
  readonly metrics: RestoreMetrics & RuleCountMetrics;
}

async function redirectListeners(context: FamilyContext, parts: RuleParts): Promise<Listeners> {
  const { node, metrics, sockets, relays, retry } = parts;
  const { config, conntrack } = node;
  const { family, nodeIP, log } = context;
  const addressesAmong = (local: ReadonlySet<IpAddress>, before?: IpAddress): ProxyAddresses => {
    const found = hostAddressAmong(local, nodeIP, before);
    return { listenAddress: listenAddressOf(config.bindAddress, family, found), hostAddress: found ?? nodeIP };
  };
  const addresses = addressesAmong(new Set(await localAddresses(family)));
  const range = parsePortRange(config.userspace.portRange);
  const ports = new PortAllocator({
    range: range.ok ? range.range : ANY_PORT, // validation has rejected others
    random: Math.random,
    onPortFree: retry,
  });
  const iptables = await openIptables(family, log);
  const hasBridgePorts = await knowsBridgePorts(iptables);
  const rules = new PortalRules({ iptables, metrics, log });
  await rules.start();
  if (!hasBridgePorts)
    log.info("The kernel has no xt_physdev: external IPs are served to pods as to all other clients", {
      cannot: "recognising pods behind a bridge at external IPs",
      why: "the kernel has no xt_physdev",
    });
  return new RedirectListeners({
    family,
    plan: { ...addresses, knowsBridgePorts: hasBridgePorts, detector: context.detector },
    addressesAmong,
    rules,
    sockets,
    relays,
    ports,
    deleteStaleFlows: staleFlowsOf(conntrack, family, node.clock, log),
    log,
  });
}

async function open(node: NodeContext) {
  const { rules } = node.config.userspace;
  // Rules of an earlier run would lead nowhere.
  if (rules === "none") await cleanUp(node.log);
  const restoreMetricsOf = defineRestoreMetrics(node.metrics);
  const ruleCountMetricsOf = defineRuleCountMetrics(node.metrics);
  return {
    async frontFor(context: FamilyContext, parts: FrontParts): Promise<Front> {
      const { family, detector, log } = context;
      const metrics = { ...restoreMetricsOf(family), ...ruleCountMetricsOf(family) };
      return {
        listeners:
          rules === "iptables"
            ? await redirectListeners(context, { ...parts, node, metrics })
            : new HostListeners({ family, sockets: parts.sockets, detector, log }),
        hostAddresses: () => localAddresses(family),
        watchHostAddresses: (onChange, signal) => node.addressWatch.watch(onChange, signal),
      };
    },
  };
}

export const linuxHost: UserspaceHost = {
  unsupported: async (family, { userspace }) =>
    userspace.rules === "none" ? undefined : await missingIptables(family, "tools"),
  openFiles(log) {
    const { limit, problem } = raiseFileLimit();
    if (problem !== undefined)
      log.error("The number of connections is limited", new Error(problem), {
        cannot: "as many connections as requested",
      });
    log.v(2, "Raised the limit of open files", { limit });
    return limit;
  },
  open,
};
