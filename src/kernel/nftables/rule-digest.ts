/**
 * A short digest of a rule's content. It is stored with the rule in the kernel, so that a restarted process recognizes its
 * own rules without decoding them: rules never change in place.
 */
import { hash } from "node:crypto";
import type { NftRule } from "./ruleset.ts";

/** Sixteen hexadecimal digits; equal for equal rules. */
export function ruleDigest(rule: NftRule): string {
  const digest = hash("sha256", JSON.stringify([rule.comment ?? "", rule.statements]));
  // Joined from two halves: a longer slice would keep the whole digest in memory, for every rule.
  return [digest.slice(0, 8), digest.slice(8, 16)].join("");
}

/**
 * Must be incremented when the same rule compiles to other expressions than before, so that rules of older versions are
 * not considered right.
 */
const COMPILER = 1;

const DIGEST_BYTES = 8;

/** The origin mark for user data. @param digest sixteen hexadecimal digits. */
export function originOfDigest(digest: string): Uint8Array {
  const origin = Buffer.allocUnsafe(1 + DIGEST_BYTES);
  origin[0] = COMPILER;
  origin.write(digest, 1, DIGEST_BYTES, "hex");
  return origin;
}

/** The digest in an origin mark; undefined if another program or another version made it. */
export function digestOfOrigin(origin: Uint8Array | undefined): string | undefined {
  if (origin === undefined || origin.length !== 1 + DIGEST_BYTES || origin[0] !== COMPILER) return undefined;
  return Buffer.from(origin.buffer, origin.byteOffset + 1, DIGEST_BYTES).toString("hex");
}
