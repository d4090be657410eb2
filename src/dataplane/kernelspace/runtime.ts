/** The kernelspace mode, put together: HNS's libraries, its version, the network of the cluster. Reference windows.md §1. */
import { readFileSync } from "node:fs";
import type { KubeProxyConfig } from "../../config/config.ts";
import { openHcn } from "../../kernel/hcn/computenetwork.ts";
import type { HcnNetwork } from "../../kernel/hcn/documents.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { Logger } from "../../logging/logger.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import { KernelspaceBackend } from "./backend.ts";
import { cleanUpHost } from "./cleanup.ts";
import { hostInterfaces, hostMacOf, networkNameOf, planConfigOf, rootEndpointNameOf } from "./host-config.ts";
import { isOverlay, missingNetworkText } from "./host-state.ts";
import { defineKernelspaceMetrics } from "./metrics.ts";
import {
  awaitHost,
  findSourceVip,
  hcnWith,
  missingSourceVipText,
  probe,
  requireFeatures,
  SOURCE_VIP_FILE,
  singleFamilyReason,
} from "./start.ts";

const NO_NAME =
  "no HNS network is named: set winkernel.networkName (--network-name) or the environment variable KUBE_NETWORK";
const ONLY_WINDOWS =
  "kernelspace mode runs on Windows only; 'kube-proxy render --mode kernelspace' shows here what it would ask HNS for";

let opened: Hcn | undefined;

function hcnOf(log: Logger): Hcn {
  opened ??= hcnWith(openHcn(), log);
  return opened;
}

/** @throws Error when none is named. */
function requiredNetworkName(config: KubeProxyConfig | undefined): string {
  const name = networkNameOf(config);
  if (name === "") throw new Error(NO_NAME);
  return name;
}

/** After it was waited for. @throws Error when it has gone again. */
async function networkOf(hcn: Hcn, config: KubeProxyConfig): Promise<HcnNetwork> {
  const name = requiredNetworkName(config);
  const network = await hcn.named("Network", name);
  if (network === undefined) throw new Error(missingNetworkText(name));
  return network;
}

const sourcesOf = ({ winkernel }: KubeProxyConfig) => ({ config: winkernel, readFile: readSourceVipFile });

/** After it was waited for. @throws Error when it has gone again. */
async function requiredSourceVip(
  hcn: Hcn,
  network: HcnNetwork,
  config: KubeProxyConfig,
  log: Logger,
): Promise<IpAddress> {
  const found = await findSourceVip(hcn, network, sourcesOf(config));
  if (found === undefined) throw new Error(missingSourceVipText(network));
  if (found !== config.winkernel.sourceVip)
    log.info("The source VIP is the one that is reserved on this node", { sourceVip: found });
  return found;
}

/** PowerShell writes UTF-16 with a mark, others UTF-8. */
function readSourceVipFile(): string | undefined {
  try {
    const bytes = readFileSync(SOURCE_VIP_FILE);
    return new TextDecoder(bytes[0] === 0xff ? "utf-16le" : "utf-8").decode(bytes);
  } catch {
    return undefined;
  }
}

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, log } = node;
  const hcn = hcnOf(log);
  const metricsOf = defineKernelspaceMetrics(node.metrics);
  const features = await probe(hcn);
  const network = await networkOf(hcn, config);
  requireFeatures(features, network, config.winkernel);
  if (!features.sessionAffinity) log.info("Session Affinity is not supported on this version of Windows");
  return {
    async backendFor(context) {
      const interfaces = hostInterfaces();
      const sourceVip = isOverlay(network) ? await requiredSourceVip(hcn, network, config, context.log) : undefined;
      return new KernelspaceBackend({
        config: planConfigOf(config, context, features, sourceVip),
        hcn,
        canModify: features.modifyLoadBalancer,
        networkName: networkNameOf(config),
        rootName: config.winkernel.forwardHealthCheckVip ? rootEndpointNameOf(config) : undefined,
        hostMac: isOverlay(network) ? hostMacOf(context.nodeIP, interfaces) : "",
        hostMacs: interfaces.macs,
        isHostAddress: (address) => hostInterfaces().macOf(address) !== undefined,
        metrics: metricsOf(context.family),
        syncPeriodMs: config.syncPeriodMs,
        clock: node.clock,
        log: context.log,
      });
    },
    // Load balancers stay and work.
    async close() {},
  };
}

async function cleanUp(log: Logger, config?: KubeProxyConfig): Promise<boolean> {
  if (process.platform !== "win32") return true;
  try {
    // Where another mode runs, there need not be a network.
    if (config !== undefined && config.mode !== "kernelspace" && networkNameOf(config) === "") return true;
    const networkName = requiredNetworkName(config);
    const sourceVip = parseIpAddress(config?.winkernel.sourceVip ?? "");
    return await cleanUpHost(hcnOf(log), { networkName, hostMacs: hostInterfaces().macs, sourceVip, log });
  } catch (error) {
    log.error("Error cleaning up the kernelspace mode", error);
    return false;
  }
}

export const kernelspaceRuntime: ModeRuntime = {
  async unsupported() {
    if (process.platform === "win32") return undefined;
    return { message: "No kernel support for kernelspace", error: ONLY_WINDOWS };
  },
  missingInKernel: async () =>
    process.platform === "win32" ? undefined : `not on this machine: Windows; ${ONLY_WINDOWS}`,
  async awaitHost({ config, ...wait }) {
    await awaitHost(hcnOf(wait.log), requiredNetworkName(config), sourcesOf(config), wait);
  },
  async singleFamilyReason(config, log) {
    const hcn = hcnOf(log);
    return await singleFamilyReason(hcn, () => networkOf(hcn, config));
  },
  open,
  cleanUp,
  checkHost: async (options) => {
    const { testHost } = await import("./self-test.ts");
    return await testHost({ ...options, calls: openHcn(), nowMs: () => performance.now() });
  },
  defineMetrics: (families) => void defineKernelspaceMetrics(families),
};
