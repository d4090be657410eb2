/** The configuration under which the nftables mode leads what no socket program decides. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { SocketProgramOptions } from "../../kernel/bpf/socket-balancer/programs.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import { localhostServiceOf } from "../nftables/localhost-node-ports.ts";

/** Constant rules, which are whole by themselves (reference ebpf.md §2.2), with the mark of this mode's section. Pure. */
export function packetPathConfig(config: KubeProxyConfig): KubeProxyConfig {
  const { masqueradeBit } = config.ebpf;
  return { ...config, mode: "nftables", nftables: { ...config.nftables, masqueradeBit, layout: "Flat" } };
}

/** To which node ports the host is led at 127.0.0.1 and ::1: those that the relay there would carry (KEP-6032). Pure. */
export function ledAtLocalhost(
  config: KubeProxyConfig,
  addresses: NodePortAddresses,
): NonNullable<SocketProgramOptions["atLocalhost"]> {
  const form = localhostServiceOf(config, addresses)?.form;
  if (form === undefined) return "none";
  return form.obeysLocalPolicy ? "cluster" : "all";
}
