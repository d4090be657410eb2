/**
 * The nftables mode, put together from the kernel's netlink interface; no `nft` program is needed. Reference nftables.md §9,
 * nftables-operation.md §10.
 */

import type { Release } from "../../config/release.ts";
import { raiseFileLimit } from "../../kernel/file-limit.ts";
import { isIpv6Supported } from "../../kernel/ipv6-support.ts";
import { isAtLeast, kernelRelease, parseKernelVersion } from "../../kernel/kernel-version.ts";
import { probeKernel } from "../../kernel/nftables/kernel-probe.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../kernel/nftables/netlink-nftables.ts";
import { type Nftables, NftError } from "../../kernel/nftables/nftables.ts";
import type { NftFamily } from "../../kernel/nftables/ruleset.ts";
import { shareOfServers } from "../../kernel/share-of-servers.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import { withoutLoopback } from "../../model/node-port-addresses.ts";
import type { IpFamily } from "../../net/ip.ts";
import { NodeRelays } from "../../relay/node-relays.ts";
import type { Relays } from "../../relay/relay.ts";
import type { FamilyContext, ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import { nodePortDestinations } from "../shared/node-port-destinations.ts";
import { NftablesBackend } from "./backend.ts";
import { chooseLayout } from "./choose-layout.ts";
import { layoutOf } from "./config.ts";
import { localhostServiceOf, protocolCounted } from "./localhost-node-ports.ts";
import { type LocalhostForm, type LocalhostMetrics, LocalhostRelay } from "./localhost-relay.ts";
import { defineLocalhostMetrics, defineNftablesMetrics } from "./metrics.ts";
import { TABLE } from "./names.ts";
import { planConfigOf } from "./plan-input.ts";

const FAMILIES: Readonly<Record<IpFamily, NftFamily>> = { IPv4: "ip", IPv6: "ip6" };
/** Upstream's, though it only stood for a recent enough `nft` program: older kernels have not been tried. */
const LEAST_KERNEL = { major: 5, minor: 13 } as const;
const SKIP_KERNEL_CHECK = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";

async function checkKernelVersion(): Promise<void> {
  if ((process.env[SKIP_KERNEL_CHECK] ?? "") !== "") return;
  const release = await kernelRelease();
  const version = parseKernelVersion(release);
  if (version === undefined || !isAtLeast(version, LEAST_KERNEL)) {
    throw new Error(
      `kube-proxy in nftables mode requires kernel 5.13 or later (this is ${release}; set ${SKIP_KERNEL_CHECK}=1 to try anyway)`,
    );
  }
}

/** Loopback addresses cannot be reached by node ports in this mode: packets to them are not translated. */
function reachable(destinations: NodePortIPs | undefined, release: Release, log: Logger): NodePortIPs | undefined {
  const others = destinations && withoutLoopback(destinations);
  if (others !== destinations && !release.mixesNodePortWords) {
    log.error(
      "--nodeport-addresses includes localhost but localhost NodePorts are not supported",
      new Error("127.0.0.0/8 and ::1 are left out"),
      { cannot: "node ports at localhost" },
    );
  }
  return others;
}

/** The kernel's rulesets, with what the mode needs. The families share one socket and one subscription to what others change. */
class ProbedKernel {
  #ruleset: NetlinkRuleset | undefined;
  readonly #probes = new Map<IpFamily, Promise<NetlinkRuleset>>();

  /** Begins to ask, for {@link ProbedKernel.ruleset}. Never rejects. */
  async askAhead(): Promise<void> {
    this.#probe("IPv4").catch(() => {});
    if (await isIpv6Supported().catch(() => false)) this.#probe("IPv6").catch(() => {});
  }

  /** Rejects when it cannot be opened, or lacks a part for the family. */
  async ruleset(family: IpFamily): Promise<NetlinkRuleset> {
    try {
      return await this.#probe(family);
    } catch (error) {
      const reason = messageOf(error);
      const proxier = `${family.toLowerCase()} proxier`;
      throw new Error(`unable to create proxier: unable to create ${proxier}: ${reason}`, { cause: error });
    }
  }

  async close(): Promise<void> {
    await this.#ruleset?.close();
  }

  #probe(family: IpFamily): Promise<NetlinkRuleset> {
    const probe = this.#probes.get(family) ?? this.#ask(family);
    this.#probes.set(family, probe);
    return probe;
  }

  async #ask(family: IpFamily): Promise<NetlinkRuleset> {
    await checkKernelVersion();
    this.#ruleset ??= openNetlinkRuleset();
    await probeKernel(this.#ruleset, FAMILIES[family]);
    return this.#ruleset;
  }
}

async function open(node: NodeContext, kernel = new ProbedKernel()): Promise<OpenMode> {
  const { config, nodeName } = node;
  const metricsOf = defineNftablesMetrics(node.metrics);
  const tables = new Map<IpFamily, Nftables>();
  let localhostMetricsOf: ReturnType<typeof defineLocalhostMetrics> | undefined;
  let relays: Relays | undefined;
  const localhostRelay = (form: LocalhostForm, metrics: LocalhostMetrics, { family, log }: FamilyContext) => {
    relays ??= openRelays(node.log);
    return new LocalhostRelay({ family, nodeName, form, relays, metrics, log });
  };
  return {
    async backendFor(context) {
      const { family, nodePortAddresses, log } = context;
      const ruleset = await kernel.ruleset(family);
      const planConfig = planConfigOf(config, context);
      log.v(2, "Using nftables mark for masquerade", {
        mark: `0x${planConfig.masqueradeMark.toString(16).padStart(8, "0")}`,
      });
      const nft = ruleset.open({ family: FAMILIES[family], table: TABLE });
      tables.set(family, nft);
      const localhost = localhostServiceOf(config, nodePortAddresses);
      if (localhost !== undefined)
        localhostMetricsOf ??= defineLocalhostMetrics(node.metrics, () => rejectedPackets(tables, node.log));
      const metrics = localhost && localhostMetricsOf?.(family);
      return new NftablesBackend({
        config: planConfig,
        layout: await chooseLayout(layoutOf(config.nftables), { ruleset, family: FAMILIES[family], log }),
        nft,
        ...(localhost?.form && metrics && { localhost: localhostRelay(localhost.form, metrics, context) }),
        nodePortIPs: async () =>
          reachable(
            await nodePortDestinations(
              nodePortAddresses,
              "Failed to get node ip address matching nodeport cidrs, services with nodeport may not work as intended",
              log,
            ),
            planConfig.release,
            log,
          ),
        metrics: metricsOf(family),
        clock: node.clock,
        syncPeriodMs: config.syncPeriodMs,
        log,
      });
    },
    close: () => kernel.close(),
  };
}

function openRelays(log: Logger): Relays {
  const { limit } = raiseFileLimit();
  return new NodeRelays({ log, fileLimit: limit - shareOfServers(limit) });
}

/** What the rules have counted of packets to node ports on loopback addresses. */
async function rejectedPackets(tables: ReadonlyMap<IpFamily, Nftables>, log: Logger) {
  const perFamily = await Promise.all(
    Array.from(tables, async ([family, nft]) => {
      const counters = await nft.readCounters().catch((error: unknown) => {
        log.error("failed to list nftables counters", error, { ipFamily: family });
        return new Map<string, number>();
      });
      return [...counters].sort().flatMap(([name, packets]) => {
        const protocol = protocolCounted(name);
        return protocol === undefined ? [] : [{ family, protocol, packets }];
      });
    }),
  );
  return perFamily.flat();
}

/** Deletes the tables of both families. A kernel without nf_tables has none. */
async function cleanUp(log: Logger): Promise<boolean> {
  let ruleset: NetlinkRuleset;
  try {
    ruleset = openNetlinkRuleset();
  } catch {
    return true;
  }
  let succeeded = true;
  try {
    for (const family of Object.values(FAMILIES)) {
      try {
        await ruleset.open({ family, table: TABLE }).transact([{ kind: "delete-table" }]);
      } catch (error) {
        if (error instanceof NftError && error.code === "not_found") continue;
        log.error("Error cleaning up nftables rules", error, { family });
        succeeded = false;
      }
    }
  } finally {
    await ruleset.close();
  }
  return succeeded;
}

export const nftablesRuntime: ModeRuntime = {
  // What the kernel lacks is found out, and said, when the backend is made.
  unsupported: async () => undefined,
  open: (node) => open(node),
  askAhead() {
    const kernel = new ProbedKernel();
    void kernel.askAhead();
    return (node) => open(node, kernel);
  },
  cleanUp,
  defineMetrics(families) {
    defineNftablesMetrics(families);
    defineLocalhostMetrics(families, async () => []);
  },
};
