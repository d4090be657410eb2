/** Arithmetic and comparisons of the instruction set, on unsigned 64-bit numbers (reference ebpf-programs.md §4.1). */
import type { AluOperation, Bits, Comparison } from "./instruction.ts";

/** The result of an operation. 32-bit operands are the lower halves, and the upper half of their result is 0. */
export function compute(operation: AluOperation, bits: Bits, left: bigint, right: bigint): bigint {
  const [one, two] = [BigInt.asUintN(bits, left), BigInt.asUintN(bits, right)];
  return BigInt.asUintN(bits, operate(operation, bits, one, two));
}

function operate(operation: AluOperation, bits: Bits, one: bigint, two: bigint): bigint {
  const shift = two & BigInt(bits - 1);
  switch (operation) {
    case "add":
      return one + two;
    case "sub":
      return one - two;
    case "mul":
      return one * two;
    case "div":
      return two === 0n ? 0n : one / two;
    case "mod":
      return two === 0n ? one : one % two;
    case "or":
      return one | two;
    case "and":
      return one & two;
    case "xor":
      return one ^ two;
    case "lsh":
      return one << shift;
    case "rsh":
      return one >> shift;
    case "arsh":
      return BigInt.asIntN(bits, one) >> shift;
    case "mov":
      return two;
  }
}

export function compare(comparison: Comparison, bits: Bits, left: bigint, right: bigint): boolean {
  const [one, two] = [BigInt.asUintN(bits, left), BigInt.asUintN(bits, right)];
  const [signedOne, signedTwo] = [BigInt.asIntN(bits, one), BigInt.asIntN(bits, two)];
  switch (comparison) {
    case "==":
      return one === two;
    case "!=":
      return one !== two;
    case ">":
      return one > two;
    case ">=":
      return one >= two;
    case "<":
      return one < two;
    case "<=":
      return one <= two;
    case "&":
      return (one & two) !== 0n;
    case "s>":
      return signedOne > signedTwo;
    case "s>=":
      return signedOne >= signedTwo;
    case "s<":
      return signedOne < signedTwo;
    case "s<=":
      return signedOne <= signedTwo;
  }
}

/** The low `bits` in the opposite or the same order; the rest is 0. For a little-endian host. */
export function convertOrder(order: "le" | "be", bits: 16 | 32 | 64, value: bigint): bigint {
  const low = BigInt.asUintN(bits, value);
  if (order === "le") return low;
  let swapped = 0n;
  for (let byte = 0; byte < bits / 8; byte++) swapped = (swapped << 8n) | ((low >> BigInt(byte * 8)) & 0xffn);
  return swapped;
}
