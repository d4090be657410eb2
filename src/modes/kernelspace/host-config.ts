/** Settings of the host, from the configuration, the environment and upstream's defaults. Reference windows.md §1.1, §1.3. */

import { networkInterfaces } from "node:os";
import { splitHostPort } from "../../contract/config/bind-address.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { PlannedNode } from "../../model/node-plan-config.ts";
import { type IpAddress, isUnspecified, parseIpAddress } from "../../net/ip.ts";
import { ROOT_ENDPOINT_NAME } from "./config.ts";
import type { PlanConfig } from "./plan-service-port.ts";

/** The HNS network of the pods; empty if neither the configuration nor the environment names one. */
export function networkNameOf(config: KubeProxyConfig | undefined, env: NodeJS.ProcessEnv = process.env): string {
  return config?.winkernel.networkName || (env.KUBE_NETWORK ?? "");
}

/** The HNS endpoint of the node itself. */
export function rootEndpointNameOf({ winkernel }: KubeProxyConfig): string {
  return winkernel.rootHnsEndpointName || ROOT_ENDPOINT_NAME;
}

/** The port of the proxy's own health server; 0 if there is none. */
function healthPortOf({ healthzBindAddress }: KubeProxyConfig): number {
  const port = Number(splitHostPort(healthzBindAddress)?.port ?? 0);
  return Number.isInteger(port) ? port : 0;
}

/** @param features of HNS; @param sourceVip of an overlay. */
export function planConfigOf(
  config: KubeProxyConfig,
  { family, name, nodeIP }: PlannedNode,
  features: { readonly dsr: boolean; readonly sessionAffinity: boolean },
  sourceVip: IpAddress | undefined,
): PlanConfig {
  const { winkernel } = config;
  return {
    family,
    nodeName: name,
    nodeIP,
    enableDsr: winkernel.enableDSR,
    hasDsr: features.dsr,
    hasAffinity: features.sessionAffinity,
    sourceVip,
    healthPort: winkernel.forwardHealthCheckVip ? healthPortOf(config) : undefined,
  };
}

interface HostInterfaces {
  /** In lower case with colons. */
  readonly macs: ReadonlySet<string>;
  /** The MAC address of the last interface with the address; undefined if there is none. */
  macOf(address: IpAddress): string | undefined;
}

/** Reads the current interfaces. */
export function hostInterfaces(read: typeof networkInterfaces = networkInterfaces): HostInterfaces {
  const byAddress = new Map<IpAddress, string>();
  const macs = new Set<string>();
  for (const entries of Object.values(read())) {
    for (const { address: text, mac } of entries ?? []) {
      const address = parseIpAddress(text);
      if (address !== undefined) byAddress.set(address, mac.toLowerCase());
      if (mac !== NO_MAC) macs.add(mac.toLowerCase());
    }
  }
  return { macs, macOf: (address) => byAddress.get(address) };
}

/** The MAC address of the interface with the node's address, which overlays need. @throws Error that says what to set. */
export function hostMacOf(nodeIP: IpAddress, interfaces: HostInterfaces): string {
  const mac = interfaces.macOf(nodeIP);
  if (mac !== undefined) return mac;
  const why = isUnspecified(nodeIP) ? "the node's address is not known" : "no interface has the node's address";
  throw new Error(`could not find host mac address for ${nodeIP}: ${why}; set --bind-address to one that is here`);
}

/** Of the loopback interface. */
const NO_MAC = "00:00:00:00:00:00";
