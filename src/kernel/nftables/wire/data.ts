/** Register contents: values and verdicts (reference nfnetlink.md §4–5). */
import { attributes, binary, i32be, u32be, type ValueOf, zstring } from "../../netlink/attributes.ts";

/** A verdict of a rule, an element, or a traced packet. */
export const verdict = attributes({ code: [1, i32be], chain: [2, zstring], chainId: [3, u32be] });

/** Either bytes in register layout, or a verdict. */
export const data = attributes({ value: [1, binary], verdict: [2, verdict] });
export type NftVerdictData = ValueOf<typeof verdict>;

/** A kernel integer in a register (mark, ct state, numgen), in host byte order. */
export function hostU32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}

/** A port in a register, in network byte order. */
export function netU16(value: number): Uint8Array {
  return Uint8Array.of(value >> 8, value & 0xff);
}
