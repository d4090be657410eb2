/** Content digests, for objects without a reliable version of their own. */
import { hash } from "node:crypto";

/** A digest of about 128 bits, as 22 characters. */
export function contentDigest(text: string): string {
  return hash("sha256", text, "base64url").slice(0, 22);
}
