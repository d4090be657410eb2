/** Configuration of the nftables mode for what no socket program decides. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { SocketProgramOptions } from "../../kernel/bpf/socket-balancer/programs.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import { localhostServiceOf } from "../nftables/localhost-node-ports.ts";

/** Constant rules, complete on their own (reference ebpf.md §2.2), with the mark of this mode's section. */
export function packetPathConfig(config: KubeProxyConfig): KubeProxyConfig {
  const { masqueradeBit } = config.ebpf;
  return { ...config, mode: "nftables", nftables: { ...config.nftables, masqueradeBit, layout: "Flat" } };
}

/** Node ports that the host reaches at 127.0.0.1 and ::1: those that the relay there would carry (KEP-6032). */
export function ledAtLocalhost(
  config: KubeProxyConfig,
  addresses: NodePortAddresses,
): NonNullable<SocketProgramOptions["atLocalhost"]> {
  return localhostServiceOf(config, addresses)?.isRelayed === true ? "cluster" : "none";
}
