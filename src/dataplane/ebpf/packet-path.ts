/** The mode that leads what no socket program decides, and the configuration under which it does so. */
import type { KubeProxyConfig } from "../../config/config.ts";
import { modeNamed, type RegisteredMode } from "../registry.ts";

/** Its rules are whole by themselves (reference ebpf.md §2.2). */
export const packetPath = (): Extract<RegisteredMode, { name: "nftables" }> => {
  const mode = modeNamed("nftables");
  if (mode.name !== "nftables") throw new Error("the nftables mode, on which this one stands, is not registered");
  return mode;
};

/** The settings as the packet path reads them: constant rules, and the mark of this mode's section. Pure. */
export function packetPathConfig(config: KubeProxyConfig): KubeProxyConfig {
  const { masqueradeBit } = config.ebpf;
  return { ...config, mode: "nftables", nftables: { ...config.nftables, masqueradeBit, layout: "Flat" } };
}
