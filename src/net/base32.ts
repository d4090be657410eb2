/** RFC 4648 base32, upper case, without padding: the alphabet of hashed chain names. */

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/**
 * Encodes bytes given as hexadecimal text: a digest as text costs a fraction of a buffer.
 *
 * @param hex a multiple of five digits: five of them give four characters of base32.
 */
export function base32FromHex(hex: string): string {
  let text = "";
  for (let at = 0; at < hex.length; at += 5) {
    const bits = Number.parseInt(hex.slice(at, at + 5), 16);
    text += `${ALPHABET[bits >>> 15]}${ALPHABET[(bits >>> 10) & 31]}${ALPHABET[(bits >>> 5) & 31]}${ALPHABET[bits & 31]}`;
  }
  return text;
}

/** The inverse of {@link base32FromHex}, in lower case. @returns undefined for text that is not base32. */
export function hexFromBase32(text: string): string | undefined {
  if (text.length % 4 !== 0) return undefined;
  let hex = "";
  for (let at = 0; at < text.length; at += 4) {
    let bits = 0;
    for (const character of text.slice(at, at + 4)) {
      const value = ALPHABET.indexOf(character);
      if (value < 0) return undefined;
      bits = bits * 32 + value;
    }
    hex += bits.toString(16).padStart(5, "0");
  }
  return hex;
}
