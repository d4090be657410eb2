/** The bit of the packet mark that requests masquerading: its default, its validation, and the planners' mark. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { CONFIG_ROOT, invalid } from "../../contract/config/field-error.ts";
import type { NodePlanConfig, PlannedNode } from "../../model/node-plan-config.ts";

/** Upstream's default in every mode (reference configuration.md §3.3). */
export const DEFAULT_MASQUERADE_BIT = 14;

/** @param goType the type of the section in upstream's error paths. */
export function masqueradeBitErrors(goType: string, bit: number): readonly string[] {
  const isBit = bit >= 0 && bit <= 31;
  return isBit ? [] : [invalid(`${CONFIG_ROOT}.${goType}.MasqueradeBit`, bit, "must be within the range [0, 31]")];
}

/** @param section the configuration section with the bit. */
export function nodePlanConfig(
  { family, name, nodeIP, detector }: PlannedNode,
  { masqueradeAll, balancing }: KubeProxyConfig,
  section: { readonly masqueradeBit: number },
): NodePlanConfig {
  const masqueradeMark = 2 ** section.masqueradeBit;
  return { family, nodeName: name, nodeIP, detector, masqueradeAll, masqueradeMark, hashSeed: balancing.seed };
}
