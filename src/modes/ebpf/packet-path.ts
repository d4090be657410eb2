/** Configuration of the nftables mode for what no socket program decides. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import { localhostServiceOf } from "../nftables/localhost-node-ports.ts";

/** Constant rules, complete on their own (reference ebpf.md §2.2), with the mark of this mode's section. */
export function packetPathConfig(config: KubeProxyConfig): KubeProxyConfig {
  const { masqueradeBit } = config.ebpf;
  return { ...config, mode: "nftables", nftables: { ...config.nftables, masqueradeBit, layout: "Flat" } };
}

/** Whether the host is led at 127.0.0.1 and ::1, to node ports that the relay there would carry (KEP-6032). */
export function leadsLocalhost(config: KubeProxyConfig, addresses: NodePortAddresses): boolean {
  return localhostServiceOf(config, addresses)?.isRelayed === true;
}
