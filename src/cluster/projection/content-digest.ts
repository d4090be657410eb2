/** Digests of content, where an object has no version of its own that can be trusted. */
import { hash } from "node:crypto";

/** A 128-bit digest of a text, as 22 characters. Equal texts have equal digests. Pure. */
export function contentDigest(text: string): string {
  return hash("sha256", text, "base64url").slice(0, 22);
}
