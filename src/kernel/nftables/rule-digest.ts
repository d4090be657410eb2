/**
 * A short name for the content of a rule. It is stored with the rule in the kernel, so that a restarted process knows its
 * own rules again without decoding them: rules never change in place.
 */
import { hash } from "node:crypto";
import type { NftRule } from "./ruleset.ts";

/** Sixteen hexadecimal digits; equal for equal rules. Pure. */
export function ruleDigest(rule: NftRule): string {
  const digest = hash("sha256", JSON.stringify([rule.comment ?? "", rule.statements]));
  // In two halves: a longer slice would keep the whole digest in memory, for every chain.
  return [digest.slice(0, 8), digest.slice(8, 16)].join("");
}
