/** How to detect packets of local pods, as data that each mode writes in its own syntax (reference node.md §10). */
import type { Facts } from "../logging/logger.ts";
import { isLongestInterfaceName } from "../net/interface-name.ts";
import { type Cidr, familyOf, type IpFamily, parseCidr } from "../net/ip.ts";

export type LocalTrafficDetector =
  | { readonly kind: "none" }
  | { readonly kind: "cidr"; readonly cidr: Cidr }
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interface-prefix"; readonly prefix: string };

/** The settings that choose a detector. */
export interface LocalTrafficSettings {
  /** `detectLocalMode`; empty means ClusterCIDR. */
  readonly mode: string;
  readonly clusterCIDRs: readonly string[];
  /** `spec.podCIDRs` of this node. */
  readonly podCIDRs: readonly string[];
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
}

/** A detector and, if it detects nothing, the reason, which is logged for the primary family. */
interface DetectorChoice {
  readonly detector: LocalTrafficDetector;
  readonly reason: { readonly message: string; readonly facts: Facts } | undefined;
}

const NONE: LocalTrafficDetector = { kind: "none" };

/**
 * Chooses the detector of one family (node.md §10, configuration.md §7). The CIDR modes use the first prefix of the
 * family; without one nothing is detected, and backends omit the rules that need detection.
 */
export function detectorFor(family: IpFamily, settings: LocalTrafficSettings): DetectorChoice {
  switch (settings.mode) {
    case "":
    case "ClusterCIDR":
      return cidrDetector(family, settings.clusterCIDRs, {
        message: "Detect-local-mode set to ClusterCIDR, but no cluster CIDR specified for primary IP family",
        facts: { ipFamily: family, clusterCIDRs: settings.clusterCIDRs },
      });
    case "NodeCIDR":
      return cidrDetector(family, settings.podCIDRs, {
        message: "Detect-local-mode set to NodeCIDR, but no PodCIDR defined at node for primary IP family",
        facts: { ipFamily: family, podCIDRs: settings.podCIDRs },
      });
    case "BridgeInterface":
      return { detector: bridge(settings.bridgeInterface), reason: undefined };
    case "InterfaceNamePrefix":
      return { detector: beginningWith(settings.interfaceNamePrefix), reason: undefined };
    default:
      return {
        detector: NONE,
        reason: { message: "Defaulting to no-op detect-local", facts: { detectLocalMode: settings.mode } },
      };
  }
}

/** A trailing `+` (iptables) or `*` (nft) is a wildcard in every mode; upstream passes the text to the tool of its mode. */
function bridge(name: string): LocalTrafficDetector {
  return /.[+*]$/.test(name) ? beginningWith(name.slice(0, -1)) : { kind: "interface", name };
}

/** A prefix of the maximum length is a whole interface name, and iptables rejects a wildcard after it. */
function beginningWith(prefix: string): LocalTrafficDetector {
  return isLongestInterfaceName(prefix) ? { kind: "interface", name: prefix } : { kind: "interface-prefix", prefix };
}

function cidrDetector(
  family: IpFamily,
  texts: readonly string[],
  reason: NonNullable<DetectorChoice["reason"]>,
): DetectorChoice {
  for (const text of texts) {
    const cidr = parseCidr(text.trim());
    if (cidr !== undefined && familyOf(cidr) === family) return { detector: { kind: "cidr", cidr }, reason: undefined };
  }
  return { detector: NONE, reason };
}
