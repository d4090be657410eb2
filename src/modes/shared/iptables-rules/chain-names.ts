/**
 * Names of chains: reference iptables.md §1, §3. Hashes must equal upstream's, so that both programs own the same
 * chains on a node that switches between them.
 */

import { hash } from "node:crypto";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import type { ServicePortName } from "../../../model/service-port-name.ts";
import { base32FromHex, hexFromBase32 } from "../../../net/base32.ts";
import { protocolName } from "../../../net/protocol.ts";

/** Chains that belong to no service port. Chains of the same name in `filter` and `nat` are different ones. */
export const CHAINS = {
  services: "KUBE-SERVICES" as ChainName,
  externalServices: "KUBE-EXTERNAL-SERVICES" as ChainName,
  forward: "KUBE-FORWARD" as ChainName,
  nodePorts: "KUBE-NODEPORTS" as ChainName,
  proxyFirewall: "KUBE-PROXY-FIREWALL" as ChainName,
  firewall: "KUBE-FIREWALL" as ChainName,
  postrouting: "KUBE-POSTROUTING" as ChainName,
  markMasquerade: "KUBE-MARK-MASQ" as ChainName,
  canary: "KUBE-PROXY-CANARY" as ChainName,
} as const;

/** Prefixes of the nat chains of service ports; unused chains with these prefixes are ours to delete. */
const SERVICE_CHAIN_PREFIXES = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-"] as const;

/** Whether a nat chain belongs to a service port of this run or an earlier one. */
export function isServiceChain(name: string): name is ChainName {
  return SERVICE_CHAIN_PREFIXES.some((prefix) => name.startsWith(prefix));
}

/** The chains of one service port; it may not use all of them. */
export interface ServicePortChains {
  /** `KUBE-SVC-…`: endpoints for the Cluster policy. */
  readonly cluster: ChainName;
  /** `KUBE-SVL-…`: endpoints for the Local policy. */
  readonly local: ChainName;
  /** `KUBE-EXT-…`: entry for all external addresses and the node port. */
  readonly external: ChainName;
  /** `KUBE-FW-…`: source ranges in front of `external`. */
  readonly firewall: ChainName;
}

/** Hexadecimal digits of ten bytes. */
const HASH_DIGITS = 20;

/** The first 16 base32 characters of the SHA-256 hash: ten bytes. */
function shortHash(text: string): string {
  return base32FromHex(hash("sha256", text, "hex").slice(0, HASH_DIGITS));
}

/** The four chains of a service port; they share one hash. */
export function servicePortChains(name: ServicePortName): ServicePortChains {
  const suffix = shortHash(name.text + protocolName(name.protocol));
  return {
    cluster: `KUBE-SVC-${suffix}` as ChainName,
    local: `KUBE-SVL-${suffix}` as ChainName,
    external: `KUBE-EXT-${suffix}` as ChainName,
    firewall: `KUBE-FW-${suffix}` as ChainName,
  };
}

/**
 * Tests whether a chain belongs to an endpoint of a port. Compares only digests, for one chain and very many endpoints.
 *
 * @param chain `KUBE-SEP-…`. @returns a function of the port and an endpoint's text.
 */
export function endpointChainTest(chain: string): (name: ServicePortName, endpointText: string) => boolean {
  const wanted = hexFromBase32(chain.slice("KUBE-SEP-".length));
  if (wanted?.length !== HASH_DIGITS) return () => false;
  return (name, endpointText) => {
    return hash("sha256", name.text + protocolName(name.protocol) + endpointText, "hex").startsWith(wanted);
  };
}

/** The chain of one endpoint of a port. */
export function endpointChain(name: ServicePortName, endpoint: Pick<Endpoint, "text">): ChainName {
  return `KUBE-SEP-${shortHash(name.text + protocolName(name.protocol) + endpoint.text)}` as ChainName;
}
