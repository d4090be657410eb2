/** RFC 4648 base32, upper case, without padding: the alphabet of hashed chain names. */

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** Encodes bytes, five bits a character; a last group is filled with zero bits. Pure. */
export function base32(bytes: Uint8Array): string {
  let text = "";
  let bits = 0;
  let pending = 0;
  for (const byte of bytes) {
    pending = ((pending << 8) | byte) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET[(pending >>> bits) & 31];
    }
  }
  return bits > 0 ? text + ALPHABET[(pending << (5 - bits)) & 31] : text;
}
