/**
 * Everything about the node that must be settled before there is a proxier: its name and addresses, the families it can
 * serve, and whether the configuration fits it. Reference start.md §1 (steps 14 to 22), configuration.md §5, §6.
 */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { withoutNodePortWords } from "../../contract/config/node-port-words.ts";
import type { ModeRuntime } from "../../contract/dataplane.ts";
import { isIpv6Supported } from "../../kernel/ipv6-support.ts";
import type { Logger } from "../../logging/logger.ts";
import { effectiveNodeAddresses, type NodeAddresses, primaryCidrs } from "../../model/node-identity.ts";
import type { RegisteredMode } from "../../modes/registry.ts";
import { type IpFamily, isLoopback } from "../../net/ip.ts";
import { familyCheck, fatalFamilyText, INCOMPLETE_CONFIG_MESSAGE, softCheck } from "../settings/soft-checks.ts";
import type { NodeFacts } from "./node-manager.ts";

/** The node as the proxiers are built for it. */
export interface NodeSetup {
  readonly addresses: NodeAddresses;
  readonly podCIDRs: readonly string[];
  /** `nodePortAddresses` with its keywords replaced by prefixes. */
  readonly nodePortAddresses: readonly string[];
  /** Families to serve, IPv4 first. */
  readonly families: readonly IpFamily[];
  /** Families that cannot be served, and why. */
  readonly unsupported: readonly { readonly what: string; readonly why: string }[];
}

/** What setting up the node requires of its mode. */
export type ModeSupport = Pick<ModeRuntime, "unsupported" | "singleFamilyReason"> &
  Pick<RegisteredMode, "unavailableText">;

/** Settles the node. @throws Error if the primary family cannot be served or the configuration cannot work. */
export async function setUpNode(
  config: KubeProxyConfig,
  node: NodeFacts,
  mode: ModeSupport,
  log: Logger,
): Promise<NodeSetup> {
  const addresses = effectiveNodeAddresses(node.nodeIPs, config.bindAddress);
  if (node.nodeIPs.length > 0) log.info("Successfully retrieved NodeIPs", { NodeIPs: node.nodeIPs });
  const { primaryFamily } = addresses;
  if (isLoopback(addresses.ips[primaryFamily])) {
    log.info(
      "Can't determine this node's IP, assuming loopback; if this is incorrect, please set the --bind-address flag",
    );
  }
  const nodePortAddresses = withoutNodePortWords(config.nodePortAddresses, primaryCidrs(addresses));
  const facts = { primaryFamily, podCIDRs: node.podCIDRs };
  const expanded = { ...config, nodePortAddresses };
  const incomplete = softCheck(expanded, facts);
  if (incomplete !== undefined) log.error(INCOMPLETE_CONFIG_MESSAGE, new Error(incomplete));

  const { families: supported, unsupported } = await supportedFamilies(mode, config, log);
  const reason = supported.length === 2 ? await mode.singleFamilyReason?.(config, log) : undefined;
  if (reason !== undefined) {
    log.info(reason);
    for (const family of supported) {
      if (family !== primaryFamily) unsupported.push({ what: `${family} services`, why: reason });
    }
  }
  const families = reason === undefined ? supported : [primaryFamily];
  if (!families.includes(primaryFamily)) throw new Error(`no support for primary IP family "${primaryFamily}"`);
  const isDualStack = families.length === 2;
  if (isDualStack) log.info("kube-proxy running in dual-stack mode", { "primary ipFamily": primaryFamily });
  else log.info("kube-proxy running in single-stack mode", { ipFamily: primaryFamily });

  const mismatch = familyCheck(expanded, facts, isDualStack);
  if (mismatch?.fatal === true) throw new Error(fatalFamilyText(mismatch));
  if (mismatch !== undefined) {
    log.error(INCOMPLETE_CONFIG_MESSAGE, new Error(mismatch.message), { cannot: "both families" });
  }
  return { addresses, podCIDRs: node.podCIDRs, nodePortAddresses, families, unsupported };
}

async function supportedFamilies(
  mode: ModeSupport,
  config: KubeProxyConfig,
  log: Logger,
): Promise<{ families: IpFamily[]; unsupported: NodeSetup["unsupported"][number][] }> {
  const families: IpFamily[] = [];
  const unsupported: NodeSetup["unsupported"][number][] = [];
  const reasons: string[] = [];
  for (const family of ["IPv4", "IPv6"] as const) {
    const reason = await mode.unsupported(family, config);
    if (reason !== undefined) {
      reasons.push(reason.error);
      unsupported.push({ what: `${family} services`, why: reason.error });
      log.info(reason.message, { ipFamily: family, error: reason.error });
    } else if (family === "IPv6" && !(await isIpv6Supported())) {
      log.info("No kernel support for family", { ipFamily: family });
      unsupported.push({ what: `${family} services`, why: "the kernel has no support for the family" });
    } else families.push(family);
  }
  if (reasons.length === 2) throw new Error(`${mode.unavailableText}: ${reasons.join("; ")}`);
  return { families, unsupported };
}
