/**
 * What must be there before anything is programmed: an HNS that answers and is new enough, the network of the pods, and on an overlay
 * the source VIP. Reference windows.md §1.2, §1.3.
 */
import type { Clock } from "../../async/clock.ts";
import type { HcnNetwork } from "../../kernel/hcn/documents.ts";
import { Hcn } from "../../kernel/hcn/hcn.ts";
import type { HcnCalls } from "../../kernel/hcn/hcn-calls.ts";
import { hcnErrorClass } from "../../kernel/hcn/hcn-error.ts";
import { type HnsFeatures, hnsFeatures, hnsVersionText } from "../../kernel/hcn/hns-version.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import type { WinkernelConfig } from "./config.ts";
import { isOverlay, missingNetworkText } from "./host-state.ts";

/** What waits for the host. */
export interface HostWait {
  readonly log: Logger;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Told why it waits, and with undefined when that is over. */
  onWaiting(reason: string | undefined): void;
}

const RETRY_MS = 1_000;
/** Endpoints that CNI plugins and their scripts reserve as source VIP, in lower case: those of sig-windows-tools, and of Calico. */
const SOURCE_VIP_NAMES: ReadonlySet<string> = new Set(["sourcevip", "calico_ep"]);

/** HNS, with a warning for every object whose document cannot be read. */
export function hcnWith(calls: HcnCalls, log: Logger): Hcn {
  return new Hcn(calls, (kind, id, problem) =>
    log.warn(`An HNS object is left alone because its document ${problem}`, { kind, id }),
  );
}

/** Asks HNS what it is. @throws Error when it cannot be worked with; an HcnError when it does not answer now. */
export async function probe(hcn: Hcn): Promise<HnsFeatures> {
  try {
    await hcn.checkPolicyLists();
  } catch (error) {
    const kind = hcnErrorClass(error);
    if (kind === "down") throw error;
    if (kind === "denied") throw new Error(`HNS does not serve this process: ${messageOf(error)}`, { cause: error });
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

/**
 * Waits until HNS answers and has the network.
 *
 * @throws Error when waiting is of no use, and the signal's reason.
 */
export async function awaitHost(hcn: Hcn, networkName: string, wait: HostWait): Promise<HcnNetwork> {
  const { log, clock, signal, onWaiting } = wait;
  let told = "";
  for (;;) {
    const found = await look(hcn, networkName);
    if (typeof found === "object") {
      if (told !== "") onWaiting(undefined);
      return found;
    }
    if (found !== told) {
      log.error("Waiting for HNS and the network of the pods", new Error(found), { network: networkName });
      onWaiting(found);
    }
    told = found;
    await clock.sleep(RETRY_MS, signal);
    signal.throwIfAborted();
  }
}

/** @returns the network, or what there is to wait for. */
async function look(hcn: Hcn, networkName: string): Promise<HcnNetwork | string> {
  try {
    await probe(hcn);
    return (await hcn.networkNamed(networkName)) ?? missingNetworkText(networkName);
  } catch (error) {
    const kind = hcnErrorClass(error);
    if (kind === undefined || kind === "denied") throw error;
    return messageOf(error);
  }
}

/**
 * Why two families do not run beside each other here; undefined where they do. Reference windows.md §1.2.
 *
 * @param findNetwork not called where Windows is too old.
 */
export async function singleFamilyReason(
  hcn: Hcn,
  findNetwork: () => Promise<HcnNetwork>,
): Promise<string | undefined> {
  const features = await probe(hcn);
  if (!features.ipv6DualStack) {
    return "This version of Windows does not support dual-stack, falling back to single-stack";
  }
  return isOverlay(await findNetwork())
    ? "Winoverlay does not support dual-stack, falling back to single-stack"
    : undefined;
}

/**
 * The source VIP: the configured one, otherwise that of the endpoint which the CNI plugin has reserved for it.
 *
 * @throws Error where there is none: an overlay cannot work without.
 */
export async function findSourceVip(
  hcn: Hcn,
  network: HcnNetwork,
  { sourceVip }: Pick<WinkernelConfig, "sourceVip">,
  family: IpFamily,
  log: Logger,
): Promise<IpAddress> {
  const configured = parseIpAddress(sourceVip);
  if (configured !== undefined) return configured;
  for (const { name, isRemote, addresses } of await hcn.endpoints(network.id)) {
    if (isRemote || !SOURCE_VIP_NAMES.has(name.toLowerCase())) continue;
    const found = addresses.find((address) => familyOf(address) === family);
    if (found === undefined) continue;
    log.info("No source VIP is configured; using that of an HNS endpoint", { endpoint: name, sourceVip: found });
    return found;
  }
  throw new Error(
    `source-vip flag not set: an overlay needs winkernel.sourceVip (--source-vip), or an endpoint named sourcevip on the HNS network "${network.name}"`,
  );
}
