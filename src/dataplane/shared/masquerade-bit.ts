/** The bit of the packet mark that asks for masquerading: its default, its checks, and the mark that it makes. Pure. */
import { CONFIG_ROOT, invalid } from "../../config/field-error.ts";

/** Upstream's, for every mode (reference configuration.md §3.3). */
export const DEFAULT_MASQUERADE_BIT = 14;

/** @param goType the type of the section in upstream's error paths. */
export function masqueradeBitErrors(goType: string, bit: number): readonly string[] {
  const isBit = bit >= 0 && bit <= 31;
  return isBit ? [] : [invalid(`${CONFIG_ROOT}.${goType}.MasqueradeBit`, bit, "must be within the range [0, 31]")];
}

/** The mark with only that bit set. */
export function masqueradeMarkOf({ masqueradeBit }: { readonly masqueradeBit: number }): number {
  return 2 ** masqueradeBit;
}
