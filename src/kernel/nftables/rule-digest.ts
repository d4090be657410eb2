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

/**
 * Rises when the same rule is compiled to other expressions than before, so that rules of an older version are not taken
 * for right.
 */
const COMPILER = 1;

const DIGEST_BYTES = 8;

/** @param digest sixteen hexadecimal digits. Pure. */
export function originOfDigest(digest: string): Uint8Array {
  const origin = Buffer.allocUnsafe(1 + DIGEST_BYTES);
  origin[0] = COMPILER;
  origin.write(digest, 1, DIGEST_BYTES, "hex");
  return origin;
}

/** The digest; undefined when the mark is another program's or another version's. Pure. */
export function digestOfOrigin(origin: Uint8Array | undefined): string | undefined {
  if (origin === undefined || origin.length !== 1 + DIGEST_BYTES || origin[0] !== COMPILER) return undefined;
  return Buffer.from(origin.buffer, origin.byteOffset + 1, DIGEST_BYTES).toString("hex");
}
