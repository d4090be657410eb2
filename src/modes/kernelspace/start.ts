/**
 * The prerequisites of the mode: an HNS that answers and is new enough, the network of the pods, and on an overlay the
 * source VIP. Reference windows.md §1.2, §1.3.
 */

import type { HostWait } from "../../contract/dataplane.ts";
import { jsonIn } from "../../logging/attempt.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { familyOf, type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { WinkernelConfig } from "./config.ts";
import type { HcnNetwork } from "./hcn/documents.ts";
import { Hcn } from "./hcn/hcn.ts";
import type { HcnCalls } from "./hcn/hcn-calls.ts";
import { hcnErrorClass } from "./hcn/hcn-error.ts";
import { type HnsFeatures, hnsFeatures, hnsVersionText } from "./hcn/hns-version.ts";
import { listOf, objectOf, textOf } from "./hcn/json-fields.ts";
import { isOverlay, missingNetworkText } from "./host-state.ts";

/** The prerequisites that were found. */
export interface FoundHost {
  readonly features: HnsFeatures;
  readonly network: HcnNetwork;
  /** Set on an overlay. */
  readonly sourceVip: IpAddress | undefined;
}

/** A prerequisite is missing that may still come. The message is for people. */
class NotThereError extends Error {}

const RETRY_MS = 1_000;
/** Names of endpoints that CNI plugins reserve as source VIP, in lower case; Calico's node agent creates one on its first start. */
const SOURCE_VIP_NAMES: ReadonlySet<string> = new Set(["sourcevip", "calico_ep"]);
/** Where sig-windows-tools' script for flannel stores the answer of the IPAM plugin. */
export const SOURCE_VIP_FILE = "c:\\sourcevip\\sourceVip.json";

/** A client of HNS that logs a warning for every object with an unusual document. */
export function hcnWith(calls: HcnCalls, log: Logger, brokenAfter?: number): Hcn {
  const onOdd = {
    unread: (kind: string, id: string, problem: string) =>
      log.warn(`An HNS object is left alone because its document ${problem}`, { kind, id }),
    otherSchema: (kind: string, id: string, version: number) =>
      log.warn("An HNS object has another schema version than requested; it is read nevertheless", {
        kind,
        id,
        version,
      }),
  };
  return new Hcn(calls, onOdd, brokenAfter);
}

/** Asks HNS for its features. @throws Error if it cannot be used; an HcnError if it does not answer now. */
export async function probe(hcn: Hcn): Promise<HnsFeatures> {
  try {
    await hcn.policyLists();
  } catch (error) {
    const kind = hcnErrorClass(error);
    if (kind === "down") throw error;
    if (kind === "denied") throw new Error(`HNS denies access to this process: ${messageOf(error)}`, { cause: error });
    throw new Error(`Windows kernel is not compatible for Kernel mode: ${messageOf(error)}`, { cause: error });
  }
  const version = await hcn.version();
  const features = hnsFeatures(version);
  if (!features.apiV2) {
    throw new Error(
      `Windows HNS Api V2 required. This version of windows does not support API V2: HNS is ${hnsVersionText(version)}, and 9.2 is needed (Windows Server 2019)`,
    );
  }
  return features;
}

/** @throws Error if this Windows lacks what the settings and the network need. */
export function requireFeatures(
  features: HnsFeatures,
  network: HcnNetwork,
  { enableDSR }: Pick<WinkernelConfig, "enableDSR">,
): void {
  if (enableDSR && !features.dsr) {
    throw new Error("platform does not support feature Direct Server Return (DSR): set winkernel.enableDSR to false");
  }
  if (isOverlay(network) && !features.remoteSubnet) throw new Error("platform does not support feature Remote Subnet");
}

/**
 * Waits until HNS answers and has the network and, on an overlay, until there is a source VIP.
 *
 * @throws Error if waiting cannot help, or the signal's reason.
 */
export async function awaitHost(
  hcn: Hcn,
  networkName: string,
  sources: SourceVipSources,
  { log, clock, signal, onWaiting }: Omit<HostWait, "config">,
): Promise<FoundHost> {
  let told = "";
  for (;;) {
    try {
      const found = await findHost(hcn, networkName, sources);
      if (told !== "") onWaiting(undefined);
      return found;
    } catch (error) {
      const kind = hcnErrorClass(error);
      if (!(error instanceof NotThereError) && (kind === undefined || kind === "denied")) throw error;
      const reason = messageOf(error);
      if (reason !== told) {
        log.error("Waiting for HNS and the network of the pods", new Error(reason), { network: networkName });
        onWaiting(reason);
      }
      told = reason;
    }
    await clock.sleep(RETRY_MS, signal);
    signal.throwIfAborted();
  }
}

/** @throws Error if the host cannot be used, or not yet. */
export async function findHost(hcn: Hcn, networkName: string, sources: SourceVipSources): Promise<FoundHost> {
  const features = await probe(hcn);
  const network = await hcn.named("Network", networkName);
  if (network === undefined) throw new NotThereError(missingNetworkText(networkName));
  if (!isOverlay(network)) return { features, network, sourceVip: undefined };
  const sourceVip = await findSourceVip(hcn, network, sources);
  if (sourceVip !== undefined) return { features, network, sourceVip };
  throw new NotThereError(
    `source-vip flag not set: the overlay "${network.name}" needs winkernel.sourceVip (--source-vip), flannel's ${SOURCE_VIP_FILE}, or an endpoint named sourcevip or Calico_ep`,
  );
}

/** Why dual-stack is not possible here; undefined if it is. Reference windows.md §1.2. */
export function singleFamilyReason({ features, network }: Omit<FoundHost, "sourceVip">): string | undefined {
  if (!features.ipv6DualStack) {
    return "This version of Windows does not support dual-stack, falling back to single-stack";
  }
  return isOverlay(network) ? "Winoverlay does not support dual-stack, falling back to single-stack" : undefined;
}

/** The sources of a source VIP. */
export interface SourceVipSources {
  readonly config: Pick<WinkernelConfig, "sourceVip">;
  /** The text of {@link SOURCE_VIP_FILE}; undefined if there is no such file. */
  readFile(): string | undefined;
}

/** The source VIP: the configured one, else that of flannel's file or of Calico's endpoint, which differ between nodes; undefined if there is none yet. */
export async function findSourceVip(
  hcn: Hcn,
  network: HcnNetwork,
  { config, readFile }: SourceVipSources,
): Promise<IpAddress | undefined> {
  const configured = parseIpAddress(config.sourceVip);
  if (configured !== undefined) return configured;
  const reserved = sourceVipIn(readFile() ?? "{}");
  if (reserved !== undefined) return reserved;
  for (const { name, isRemote, addresses } of await hcn.all("Endpoint", { VirtualNetwork: network.id })) {
    if (isRemote || !SOURCE_VIP_NAMES.has(name.toLowerCase())) continue;
    // Overlays are IPv4 only.
    const found = addresses.find((address) => familyOf(address) === "IPv4");
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The address in the answer of an IPAM plugin, in either version of its format. */
function sourceVipIn(text: string): IpAddress | undefined {
  // If it is not JSON, the script is still writing it.
  const { ip4, ips } = objectOf(jsonIn(text));
  const address = textOf(objectOf(ip4).ip) || textOf(objectOf(listOf(ips)[0]).address);
  return parseIpAddress(address.split("/")[0] ?? "");
}
