/**
 * The nftables mode on the kernel's netlink interface; no `nft` program is needed. Reference nftables.md §9,
 * nftables-operation.md §10.
 */
import type { Release } from "../../contract/config/release.ts";
import type { FamilyContext, ModeRuntime, NodeContext, OpenMode } from "../../contract/dataplane.ts";
import { raiseFileLimit } from "../../kernel/file-limit.ts";
import { isAtLeast, kernelRelease, parseKernelVersion } from "../../kernel/kernel-version.ts";
import { probeFlatLayout, probeHash, probeKernel } from "../../kernel/nftables/kernel-probe.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../kernel/nftables/netlink-nftables.ts";
import { type Nftables, NftError } from "../../kernel/nftables/nftables.ts";
import type { NftFamily } from "../../kernel/nftables/ruleset.ts";
import { shareOfServers } from "../../kernel/share-of-servers.ts";
import { clientUsers } from "../../kernel/sock-diag/user-of-client.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { type NodePortIPs, withoutLoopback } from "../../model/node-port-addresses.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { RelayOptions, Relays } from "../../relay/relay.ts";
import { nodePortDestinations } from "../shared/node-port-destinations.ts";
import { NftablesBackend } from "./backend.ts";
import { layoutOf } from "./config.ts";
import type { LayoutName } from "./layout-name.ts";
import { localhostServiceOf, protocolCounted } from "./localhost-node-ports.ts";
import { type LocalhostMetrics, LocalhostRelay } from "./localhost-relay.ts";
import { defineLocalhostMetrics, defineNftablesMetrics } from "./metrics.ts";
import { FAMILIES, TABLE } from "./names.ts";
import { planConfigOf } from "./plan-input.ts";

/** Upstream's minimum, which there only implied a recent enough `nft` program; older kernels are untested. */
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

/** Leaves out loopback addresses: in this mode the kernel does not translate packets to them. */
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

async function open(node: NodeContext): Promise<OpenMode> {
  // The families share one socket and one subscription to changes.
  let ruleset: NetlinkRuleset | undefined;
  /** Rejects if it cannot be opened, or lacks a feature that the family needs. */
  const rulesetFor = async (family: IpFamily): Promise<NetlinkRuleset> => {
    try {
      await checkKernelVersion();
      ruleset ??= openNetlinkRuleset({ log: node.log });
      await probeKernel(ruleset, FAMILIES[family]);
      return ruleset;
    } catch (error) {
      const proxier = `unable to create ${family.toLowerCase()} proxier`;
      throw new Error(`unable to create proxier: ${proxier}: ${messageOf(error)}`, { cause: error });
    }
  };
  const { config, nodeName } = node;
  const metricsOf = defineNftablesMetrics(node.metrics);
  const tables = new Map<IpFamily, Nftables>();
  let localhostMetricsOf: ReturnType<typeof defineLocalhostMetrics> | undefined;
  let relays: Relays | undefined;
  const users = clientUsers();
  const userOf: RelayOptions["userOf"] = (client, { address, port }) =>
    users({ sourceIP: client.address, sourcePort: client.port, destinationIP: address, destinationPort: port });
  const localhostRelay = async (metrics: LocalhostMetrics, { family, log }: FamilyContext) => {
    relays ??= await openRelays(node.log);
    return new LocalhostRelay({ family, nodeName, relays, userOf, metrics, log });
  };
  return {
    async backendFor(context) {
      const { family, nodePortAddresses, log } = context;
      const kernel = await rulesetFor(family);
      const lacksHash = !(await canHash(kernel, FAMILIES[family], log));
      const planConfig = { ...planConfigOf(config, context), lacksHash };
      log.v(2, "Using nftables mark for masquerade", {
        mark: `0x${planConfig.masqueradeMark.toString(16).padStart(8, "0")}`,
      });
      const nft = kernel.open({ family: FAMILIES[family], table: TABLE });
      tables.set(family, nft);
      const localhost = localhostServiceOf(config, nodePortAddresses);
      if (localhost !== undefined)
        localhostMetricsOf ??= defineLocalhostMetrics(node.metrics, () => rejectedPackets(tables, node.log));
      const metrics = localhost && localhostMetricsOf?.(family);
      return new NftablesBackend({
        config: planConfig,
        layout: await chooseLayout(layoutOf(config.nftables), { ruleset: kernel, family: FAMILIES[family], log }),
        nft,
        ...(localhost?.isRelayed && metrics && { localhost: await localhostRelay(metrics, context) }),
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
    async close() {
      await ruleset?.close();
    },
  };
}

/** Few nodes need them, so they are loaded on demand. */
async function openRelays(log: Logger): Promise<Relays> {
  const { NodeRelays } = await import("../../relay/node-relays.ts");
  const { limit } = raiseFileLimit();
  return new NodeRelays({ log, fileLimit: limit - shareOfServers(limit) });
}

/** Counts of the packets to node ports on loopback addresses that the rules rejected. */
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

export const nftablesRuntime: ModeRuntime = {
  // backendFor probes the kernel.
  unsupported: async () => undefined,
  open,
};

interface ChooseLayoutOptions {
  readonly ruleset: Pick<NetlinkRuleset, "check">;
  readonly family: NftFamily;
  readonly log: Logger;
}

/** If the kernel rejects the flat layout, logs what is missing and resolves to `Compatible`. */
export async function chooseLayout(
  wanted: LayoutName,
  { ruleset, family, log }: ChooseLayoutOptions,
): Promise<LayoutName> {
  if (wanted !== "Flat") return wanted;
  try {
    await probeFlatLayout(ruleset, family);
    return wanted;
  } catch (error) {
    if (!(error instanceof NftError)) throw error;
    log.error("The kernel lacks a part of the flat layout; using the compatible one", error, {
      family,
      cannot: `the flat layout of table ${family}`,
    });
    return "Compatible";
  }
}

/** If the kernel cannot choose endpoints by hash, logs what is missing. */
export async function canHash(
  ruleset: Pick<NetlinkRuleset, "check">,
  family: NftFamily,
  log: Logger,
): Promise<boolean> {
  try {
    await probeHash(ruleset, family);
    return true;
  } catch (error) {
    if (!(error instanceof NftError)) throw error;
    const cannot = `endpoints by hash in table ${family}`;
    log.warn("The kernel cannot choose endpoints by hash: Services that ask for it are served at random", {
      reason: error.message,
      cannot,
    });
    return false;
  }
}
