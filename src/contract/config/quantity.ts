/**
 * Kubernetes quantities (`512`, `1K`, `2Ki`), as far as the log buffer sizes need them: parsed, made canonical, and
 * converted to whole bytes. Reference configuration.md §3.2 (`logging.options.*.infoBufferSize`).
 */
import { type Parsed, parsed, refused } from "../../text/go-text.ts";

/** A quantity in canonical form, and its value rounded up to whole bytes. */
export interface Quantity {
  readonly text: string;
  readonly bytes: number;
}

export const ZERO_QUANTITY: Quantity = { text: "0", bytes: 0 };

const SHAPE = /^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$/;
const SHAPE_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const DECIMAL_SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANO = 10n ** 9n;

/** Reads a quantity; digits finer than a billionth round up, as upstream's do. */
export function parseQuantity(text: string): Parsed<Quantity> {
  const match = SHAPE.exec(text);
  const number = /^([+-]?)([0-9]*)(?:\.([0-9]*))?$/.exec(match?.[1] ?? "");
  if (match === null || number === null || `${number[2]}${number[3] ?? ""}` === "") return refused(SHAPE_ERROR);
  const suffix = match[2] ?? "";
  const scale = scaleOf(suffix);
  if (scale === undefined) return refused("unable to parse quantity's suffix");
  const fraction = number[3] ?? "";
  const digits = BigInt(`${number[2]}${fraction}`);
  const [numerator, denominator] = scale.factor;
  const size = ceilDivide(digits * numerator * NANO, denominator * 10n ** BigInt(fraction.length));
  const nano = number[1] === "-" ? -size : size;
  return parsed({ text: canonical(nano, scale.format), bytes: Number(ceilDivide(nano, NANO)) });
}

type Format = "decimal" | "binary" | "exponent";
interface Scale {
  readonly format: Format;
  readonly factor: readonly [numerator: bigint, denominator: bigint];
}

function scaleOf(suffix: string): Scale | undefined {
  const binary = BINARY_SUFFIXES.indexOf(suffix);
  if (binary > 0) return { format: "binary", factor: [1024n ** BigInt(binary), 1n] };
  const step = DECIMAL_SUFFIXES.indexOf(suffix);
  if (step >= 0) return { format: "decimal", factor: powerOfTen((step - 3) * 3) };
  const exponent = /^[eE]([+-]?[0-9]{1,2})$/.exec(suffix);
  return exponent === null ? undefined : { format: "exponent", factor: powerOfTen(Number(exponent[1])) };
}

function powerOfTen(exponent: number): readonly [bigint, bigint] {
  return exponent < 0 ? [1n, 10n ** BigInt(-exponent)] : [10n ** BigInt(exponent), 1n];
}

function ceilDivide(numerator: bigint, denominator: bigint): bigint {
  const quotient = numerator / denominator;
  return numerator % denominator > 0n ? quotient + 1n : quotient;
}

function canonical(nano: bigint, format: Format): string {
  if (nano === 0n) return "0";
  const size = nano < 0n ? -nano : nano;
  const isWhole = size % NANO === 0n;
  // No binary suffix fits below 1024, so upstream falls back to the decimal form.
  if (format === "binary" && isWhole && size >= 1024n * NANO) {
    let value = nano / NANO;
    let step = 0;
    while (value % 1024n === 0n && step < BINARY_SUFFIXES.length - 1) {
      value /= 1024n;
      step += 1;
    }
    return `${value}${BINARY_SUFFIXES[step]}`;
  }
  let value = nano;
  let step = 0;
  while (value % 1000n === 0n && step < DECIMAL_SUFFIXES.length - 1) {
    value /= 1000n;
    step += 1;
  }
  if (format !== "exponent") return `${value}${DECIMAL_SUFFIXES[step]}`;
  const exponent = (step - 3) * 3;
  return exponent === 0 ? `${value}` : `${value}e${exponent}`;
}
