/** The configuration under which the nftables mode leads what no socket program decides. */
import type { KubeProxyConfig } from "../../config/config.ts";

/** Constant rules, which are whole by themselves (reference ebpf.md §2.2), with the mark of this mode's section. Pure. */
export function packetPathConfig(config: KubeProxyConfig): KubeProxyConfig {
  const { masqueradeBit } = config.ebpf;
  return { ...config, mode: "nftables", nftables: { ...config.nftables, masqueradeBit, layout: "Flat" } };
}
