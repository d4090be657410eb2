/** The kernel's jhash (Bob Jenkins' lookup3), as nft's `jhash … mod M seed S` computes it over the bytes of a key. */

const INITIAL = 0xdeadbeef;
const BLOCK = 12;

/** The hash of these bytes, an unsigned number of 32 bits. */
export function jhash(bytes: Uint8Array, seed: number): number {
  // Beyond the last byte all are 0, as in the kernel's last block.
  const word = (at: number): number =>
    (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8) | ((bytes[at + 2] ?? 0) << 16) | ((bytes[at + 3] ?? 0) << 24) | 0;
  let a = (INITIAL + bytes.length + seed) | 0;
  let b = a;
  let c = a;
  let at = 0;
  const add = (): void => {
    a = (a + word(at)) | 0;
    b = (b + word(at + 4)) | 0;
    c = (c + word(at + 8)) | 0;
  };
  for (; bytes.length - at > BLOCK; at += BLOCK) {
    add();
    a = ((a - c) ^ rotated(c, 4)) | 0;
    c = (c + b) | 0;
    b = ((b - a) ^ rotated(a, 6)) | 0;
    a = (a + c) | 0;
    c = ((c - b) ^ rotated(b, 8)) | 0;
    b = (b + a) | 0;
    a = ((a - c) ^ rotated(c, 16)) | 0;
    c = (c + b) | 0;
    b = ((b - a) ^ rotated(a, 19)) | 0;
    a = (a + c) | 0;
    c = ((c - b) ^ rotated(b, 4)) | 0;
    b = (b + a) | 0;
  }
  if (at === bytes.length) return c >>> 0;
  add();
  c = ((c ^ b) - rotated(b, 14)) | 0;
  a = ((a ^ c) - rotated(c, 11)) | 0;
  b = ((b ^ a) - rotated(a, 25)) | 0;
  c = ((c ^ b) - rotated(b, 16)) | 0;
  a = ((a ^ c) - rotated(c, 4)) | 0;
  b = ((b ^ a) - rotated(a, 14)) | 0;
  c = ((c ^ b) - rotated(b, 24)) | 0;
  return c >>> 0;
}

/** The number below `modulus` that nft makes of a hash: by its leading bits, not by its remainder. */
export function slotOf(hash: number, modulus: number): number {
  return Number((BigInt(hash) * BigInt(modulus)) >> 32n);
}

function rotated(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}
