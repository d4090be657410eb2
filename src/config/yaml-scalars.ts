/** The scalars of YAML as upstream's reader resolves them, where that differs from YAML 1.1. Pure. */
import type { ScalarTag } from "yaml";
import { ConfigSyntaxError } from "./config-bytes.ts";

/** Go's integers in any base, with `_` anywhere behind the first character. */
const INTEGER =
  /^(?:[-+]_*)?(?:0_*[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0_*[bB]_*[01][01_]*|0_*[oO]_*[0-7][0-7_]*|0[0-7_]*|[1-9][0-9_]*)$/;
const FLOAT = /^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?$/;
const INT64_END = 2n ** 63n;
/** The greatest double that is an int64. */
const GREATEST = 2 ** 63 - 1024;

const INTEGER_TAG: ScalarTag = {
  tag: "tag:yaml.org,2002:int",
  default: true,
  test: INTEGER,
  resolve: integerOf,
};

const FLOAT_TAG: ScalarTag = {
  tag: "tag:yaml.org,2002:float",
  default: true,
  test: FLOAT,
  resolve: (text) => Number(text.replaceAll("_", "")),
};

const BINARY_TAG: ScalarTag = {
  tag: "tag:yaml.org,2002:binary",
  resolve: textOfBase64,
};

/** Numbers and binary values. Infinities are upstream's as YAML 1.1 has them. */
export const SCALAR_TAGS: readonly ScalarTag[] = [INTEGER_TAG, FLOAT_TAG, BINARY_TAG];

/** Nanoseconds are all that is ever so large; that the last digits of 292 years are lost does not matter, their limit does. */
function integerOf(text: string): number {
  const digits = text.replaceAll("_", "");
  const size = digits.replace(/^[-+]/, "");
  const value = BigInt(/^0[0-7]/.test(size) ? `0o${size}` : size);
  const isNegative = digits.startsWith("-");
  const number = value < INT64_END ? Math.min(Number(value), GREATEST) : Number(value);
  return isNegative ? -number : number;
}

/** What the octets mean in UTF-8, as they come through upstream's JSON. */
function textOfBase64(text: string): string {
  const digits = text.replaceAll(/[\r\n]/g, "");
  const isBase64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(digits);
  if (!isBase64) throw new ConfigSyntaxError("yaml: !!binary value contains invalid base64 data");
  return Buffer.from(digits, "base64").toString("utf8");
}
