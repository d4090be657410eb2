/** Hashes of 32-bit numbers, which all nodes make alike. */

export const MIX_SHIFTS = [16, 13, 16] as const;
export const MIX_FACTORS = [0x85ebca6b, 0xc2b2ae35] as const;

/** MurmurHash3's final mix (public domain), where each bit of the input changes half of the result's bits. */
export function mixed(value: number): number {
  const [first, second, third] = MIX_SHIFTS;
  let mix = Math.imul(value ^ (value >>> first), MIX_FACTORS[0]);
  mix = Math.imul(mix ^ (mix >>> second), MIX_FACTORS[1]);
  return (mix ^ (mix >>> third)) >>> 0;
}

/** The hash of two numbers. */
export function pair(a: number, b: number): number {
  return mixed(Math.imul(a, 0x9e3779b1) ^ mixed(b + 0x7f4a7c15));
}
