/** Assembles the kernelspace mode: HNS's libraries, its version, the network of the cluster. Reference windows.md §1. */
import { readFileSync } from "node:fs";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { ModeRuntime, NodeContext, OpenMode } from "../../contract/dataplane.ts";
import { withLoggedCalls } from "../../logging/logged-calls.ts";
import type { Logger } from "../../logging/logger.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import { KernelspaceBackend } from "./backend.ts";
import { openHcn } from "./hcn/computenetwork.ts";
import type { Hcn } from "./hcn/hcn.ts";
import type { HcnCalls } from "./hcn/hcn-calls.ts";
import { hcnErrorClass } from "./hcn/hcn-error.ts";
import { hostInterfaces, hostMacOf, networkNameOf, planConfigOf, rootEndpointNameOf } from "./host-config.ts";
import { HostState, isOverlay } from "./host-state.ts";
import { defineKernelspaceMetrics } from "./metrics.ts";
import { isOurRemoteEndpoint, isOurSourceVip } from "./ownership.ts";
import {
  awaitHost,
  type FoundHost,
  findHost,
  hcnWith,
  requireFeatures,
  SOURCE_VIP_FILE,
  singleFamilyReason,
} from "./start.ts";

const NO_NAME =
  "no HNS network is named: set winkernel.networkName (--network-name) or the environment variable KUBE_NETWORK";
const ONLY_WINDOWS =
  "kernelspace mode runs on Windows only; 'kube-proxy render --mode kernelspace' shows here what it would ask HNS for";

let opened: Hcn | undefined;
/** What the wait before the start found. */
let known: FoundHost | undefined;

function hcnOf(log: Logger): Hcn {
  const printed = ["createEndpoint", "createLoadBalancer", "modifyLoadBalancer", "delete"] as const;
  opened ??= hcnWith(withLoggedCalls(openHcn(), printed, "Calling HNS", log), log);
  return opened;
}

/** @throws Error when none is named. */
function requiredNetworkName(config: KubeProxyConfig | undefined): string {
  const name = networkNameOf(config);
  if (name === "") throw new Error(NO_NAME);
  return name;
}

async function hostOf(config: KubeProxyConfig, log: Logger): Promise<FoundHost> {
  known ??= await findHost(hcnOf(log), requiredNetworkName(config), sourcesOf(config));
  return known;
}

const sourcesOf = ({ winkernel }: KubeProxyConfig) => ({ config: winkernel, readFile: readSourceVipFile });

/** PowerShell writes UTF-16 with a byte order mark, other tools UTF-8. */
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
  const { features, network, sourceVip } = await hostOf(config, log);
  requireFeatures(features, network, config.winkernel);
  if (sourceVip !== undefined && sourceVip !== config.winkernel.sourceVip) {
    log.info("The source VIP is the one that is reserved on this node", { sourceVip });
  }
  if (!features.sessionAffinity) log.info("Session Affinity is not supported on this version of Windows");
  return {
    async backendFor(context) {
      const interfaces = hostInterfaces();
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
    // Load balancers stay in force.
    async close() {},
  };
}

export async function cleanUp(log: Logger, config?: KubeProxyConfig): Promise<boolean> {
  if (process.platform !== "win32") return true;
  try {
    // In another mode there need not be a network.
    if (config !== undefined && config.mode !== "kernelspace" && networkNameOf(config) === "") return true;
    const networkName = requiredNetworkName(config);
    const sourceVip = parseIpAddress(config?.winkernel.sourceVip ?? "");
    return await cleanUpHost(openHcn(), { networkName, hostMacs: hostInterfaces().macs, sourceVip, log });
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
    known = await awaitHost(hcnOf(wait.log), requiredNetworkName(config), sourcesOf(config), wait);
  },
  singleFamilyReason: async (config, log) => singleFamilyReason(await hostOf(config, log)),
  open,
  checkHost: async (options) => {
    const { testHost } = await import("./self-test.ts");
    return await testHost({ ...options, calls: openHcn(), nowMs: () => performance.now() });
  },
};

interface CleanUpOptions {
  readonly networkName: string;
  /** The MAC addresses of all interfaces, in lower case with colons. */
  readonly hostMacs: ReadonlySet<string>;
  /** `winkernel.sourceVip`. */
  readonly sourceVip: IpAddress | undefined;
  readonly log: Logger;
}

/**
 * Removes what kube-proxy left in HNS: load balancers first, then our endpoints that are no longer named. Upstream does
 * not support it (reference windows-hcn.md §5.1). @returns whether everything worked.
 */
export async function cleanUpHost(
  calls: HcnCalls,
  { networkName, hostMacs, sourceVip, log }: CleanUpOptions,
): Promise<boolean> {
  // HNS is read only once: an object that cannot be read is left out at once.
  const hcn = hcnWith(calls, log, 1);
  // Without the network, ours cannot be recognised, and kube-proxy created nothing.
  if ((await hcn.named("Network", networkName)) === undefined) {
    log.info("There is no HNS network of this name, so nothing is cleaned up", { network: networkName });
    return true;
  }
  const host = await HostState.read(hcn, { config: { family: "IPv4" }, networkName, rootName: undefined });
  let [succeeded, loadBalancers, endpoints] = [true, 0, 0];
  const attempt = async (what: string, work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      if (hcnErrorClass(error) === undefined) throw error;
      log.error("Failed to delete an HNS object", error, { what });
      succeeded = false;
      return false;
    }
  };
  for (const one of [...host.loadBalancers.all()]) {
    if (!host.isLeftover(one, [])) continue;
    const remove = () => hcn.delete("LoadBalancer", one.id);
    if (!(await attempt(`load balancer ${one.id}`, remove))) continue;
    host.loadBalancers.forget(one.id);
    loadBalancers++;
  }
  // A load balancer that could not be read may name any endpoint, and without it the next run would not recognise it.
  const isSure = (await hcn.ids("LoadBalancer")).every((id) => host.loadBalancers.has(id) || hcn.isUnread(id));
  for (const endpoint of isSure ? [...host.endpoints.all()] : []) {
    const isOurs =
      isOurRemoteEndpoint(endpoint, "IPv4", hostMacs) ||
      isOurRemoteEndpoint(endpoint, "IPv6", hostMacs) ||
      isOurSourceVip(endpoint, sourceVip, hostMacs);
    if (!isOurs || host.isNamed(endpoint.id)) continue;
    if (await attempt(`endpoint ${endpoint.id}`, () => hcn.delete("Endpoint", endpoint.id))) endpoints++;
  }
  log.info("Cleaned up HNS", { network: networkName, loadBalancers, endpoints });
  return succeeded && isSure && !hcn.hasFailures;
}
