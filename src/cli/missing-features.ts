/** `--without`: what the node's kernel or tools lack. Pure. */
import { KERNEL_FEATURES, type KernelFeature } from "../dataplane/rendering.ts";
import { UsageError } from "./exit.ts";

/** Reads a list with commas; empty words do not count. @throws UsageError for a word that names no feature. */
export function readMissing(list: string): ReadonlySet<KernelFeature> {
  const words = list.split(",").filter((word) => word !== "");
  return new Set(
    words.map((word) => {
      const feature = KERNEL_FEATURES.find((name) => name === word);
      if (feature !== undefined) return feature;
      throw new UsageError(`--without knows ${KERNEL_FEATURES.join(" and ")}, got "${word}"`);
    }),
  );
}
