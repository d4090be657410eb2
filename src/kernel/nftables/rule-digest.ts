/**
 * A short name for the content of a rule. It is stored with the rule in the kernel, so that a restarted process knows its
 * own rules again without decoding them: rules never change in place.
 */
import { hash } from "node:crypto";
import type { NftRule } from "./ruleset.ts";

/** Sixteen hexadecimal digits; equal for equal rules. Pure. */
export function ruleDigest(rule: NftRule): string {
  return hash("sha256", JSON.stringify([rule.comment ?? "", rule.statements])).slice(0, 16);
}
