/** The kernelspace mode, put together: HNS's libraries, its version, the network of the cluster. Reference windows.md §1. */
import { systemClock } from "../../async/clock.ts";
import type { KubeProxyConfig } from "../../config/config.ts";
import { openHcn } from "../../kernel/hcn/computenetwork.ts";
import type { HcnNetwork } from "../../kernel/hcn/documents.ts";
import { Hcn } from "../../kernel/hcn/hcn.ts";
import { type HnsFeatures, hnsFeatures, hnsVersionText } from "../../kernel/hcn/hns-version.ts";
import type { Logger } from "../../logging/logger.ts";
import { isUnspecified, parseIpAddress } from "../../net/ip.ts";
import type { FamilyContext, ModeRuntime, NodeContext, OpenMode } from "../dataplane.ts";
import { KernelspaceBackend } from "./backend.ts";
import { cleanUpHost } from "./cleanup.ts";
import { healthPortOf, networkNameOf, rootEndpointNameOf } from "./host-config.ts";
import { type HostInterfaces, hostInterfaces } from "./host-interfaces.ts";
import { isOverlay, missingNetworkText } from "./host-state.ts";

/** What is known of HNS once it has been asked. */
export interface Probed {
  readonly hcn: Hcn;
  readonly features: HnsFeatures;
}

const NETWORK_RETRY_MS = 1_000;
const NO_NAME =
  "no HNS network is named: set winkernel.networkName (--network-name) or the environment variable KUBE_NETWORK";
const ONLY_WINDOWS =
  "kernelspace mode runs on Windows only; 'kube-proxy render --mode kernelspace' shows here what it would ask HNS for";

let opened: Hcn | undefined;

function hcnOf(log: Logger): Hcn {
  opened ??= new Hcn(openHcn(), (kind, id, problem) =>
    log.warn(`An HNS object is left alone because its document ${problem}`, { kind, id }),
  );
  return opened;
}

/** Asks HNS what it is. @throws Error when it cannot be worked with. */
export async function probe(hcn: Hcn): Promise<Probed> {
  try {
    await hcn.checkPolicyLists();
  } catch (error) {
    throw new Error(`Windows kernel is not compatible for Kernel mode: ${messageOf(error)}`, { cause: error });
  }
  const version = await hcn.version();
  const features = hnsFeatures(version);
  if (!features.apiV2) {
    throw new Error(
      `Windows HNS Api V2 required. This version of windows does not support API V2: HNS is ${hnsVersionText(version)}, and 9.2 is needed (Windows Server 2019)`,
    );
  }
  return { hcn, features };
}

/** Waits until the network is there. @throws the signal's reason. */
export async function awaitNetwork(
  hcn: Hcn,
  name: string,
  { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
): Promise<HcnNetwork> {
  let told = "";
  for (;;) {
    const found = await hcn.networkNamed(name).catch((error: unknown) => messageOf(error));
    if (typeof found === "object") return found;
    const reason = found ?? missingNetworkText(name);
    if (reason !== told) log.error("Waiting for the HNS network of the pods", new Error(reason), { network: name });
    told = reason;
    await systemClock.sleep(NETWORK_RETRY_MS, signal);
    signal.throwIfAborted();
  }
}

async function singleFamilyReason(
  config: KubeProxyConfig,
  log: Logger,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { hcn, features } = await probe(hcnOf(log));
  if (!features.ipv6DualStack) {
    return "This version of Windows does not support dual-stack, falling back to single-stack";
  }
  const name = networkNameOf(config);
  if (name === "") throw new Error(NO_NAME);
  const network = await awaitNetwork(hcn, name, { log, signal });
  return isOverlay(network) ? "Winoverlay does not support dual-stack, falling back to single-stack" : undefined;
}

async function open(node: NodeContext): Promise<OpenMode> {
  const { config, log } = node;
  const networkName = networkNameOf(config);
  if (networkName === "") throw new Error(NO_NAME);
  const { hcn, features } = await probe(hcnOf(log));
  if (config.winkernel.enableDSR && !features.dsr) {
    throw new Error("platform does not support feature Direct Server Return (DSR): set winkernel.enableDSR to false");
  }
  if (!features.sessionAffinity) log.info("Session Affinity is not supported on this version of Windows");
  // Single-stack nodes have not waited yet.
  const network = await awaitNetwork(hcn, networkName, { log, signal: new AbortController().signal });
  if (isOverlay(network)) requireOverlay(config, features);
  return {
    async backendFor(context) {
      const interfaces = hostInterfaces();
      return new KernelspaceBackend({
        config: planConfig(node, context, features),
        hcn,
        canModify: features.modifyLoadBalancer,
        networkName,
        rootName: config.winkernel.forwardHealthCheckVip ? rootEndpointNameOf(config) : undefined,
        hostMac: isOverlay(network) ? hostMacOf(context, interfaces) : "",
        hostMacs: interfaces.macs,
        syncPeriodMs: config.syncPeriodMs,
        clock: node.clock,
        log: context.log,
      });
    },
    // Load balancers stay and work.
    async close() {},
  };
}

function requireOverlay({ winkernel }: KubeProxyConfig, features: HnsFeatures): void {
  if (!features.remoteSubnet) throw new Error("platform does not support feature Remote Subnet");
  if (winkernel.sourceVip === "") {
    throw new Error("source-vip flag not set: an overlay needs winkernel.sourceVip (--source-vip)");
  }
}

function planConfig(node: NodeContext, { family, nodeIP }: FamilyContext, features: HnsFeatures) {
  const { config, nodeName } = node;
  const { enableDSR, sourceVip, forwardHealthCheckVip } = config.winkernel;
  return {
    family,
    nodeName,
    nodeIP,
    enableDsr: enableDSR,
    hasDsr: features.dsr,
    hasAffinity: features.sessionAffinity,
    sourceVip: parseIpAddress(sourceVip),
    healthPort: forwardHealthCheckVip ? healthPortOf(config) : undefined,
  };
}

function hostMacOf({ nodeIP }: FamilyContext, interfaces: HostInterfaces): string {
  const advice = isUnspecified(nodeIP) ? "the node's address is not known" : "no interface has the node's address";
  const mac = interfaces.macOf(nodeIP);
  if (mac === undefined) {
    throw new Error(`could not find host mac address for ${nodeIP}: ${advice}; set --bind-address to one that is here`);
  }
  return mac;
}

async function cleanUp(log: Logger, config?: KubeProxyConfig): Promise<boolean> {
  if (process.platform !== "win32") return true;
  try {
    const networkName = networkNameOf(config);
    if (networkName === "") throw new Error(NO_NAME);
    return await cleanUpHost(hcnOf(log), { networkName, hostMacs: hostInterfaces().macs, log });
  } catch (error) {
    log.error("Error cleaning up the kernelspace mode", error);
    return false;
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export const kernelspaceRuntime: ModeRuntime = {
  async unsupported() {
    if (process.platform === "win32") return undefined;
    return { message: "No kernel support for kernelspace", error: ONLY_WINDOWS };
  },
  missingInKernel: async () =>
    process.platform === "win32" ? undefined : `not on this machine: Windows; ${ONLY_WINDOWS}`,
  singleFamilyReason,
  open,
  cleanUp,
  defineMetrics() {},
};
