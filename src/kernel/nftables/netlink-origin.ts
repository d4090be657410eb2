/**
 * What this program stores with each of its rules in the kernel: how it was compiled, and the digest of what it says. A
 * restarted process knows by it which rules it need not write again.
 */

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
