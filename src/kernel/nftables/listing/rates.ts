/** Statements that rules, sets and elements may have: what they count, and how much they let through. */
import type { WordReader } from "./words.ts";

function readCounter(words: WordReader): unknown {
  if (!words.takes("packets")) return null;
  const packets = words.number();
  words.expect("bytes");
  return { packets, bytes: words.number() };
}

const BYTES = new Set(["bytes", "kbytes", "mbytes", "gbytes"]);

function readLimit(words: WordReader): unknown {
  words.expect("rate");
  const inv = words.takes("over") ? { inv: true } : {};
  const [rate = "", per] = words.next().split("/");
  // Of bytes, the unit follows: `10 mbytes/second`.
  const [unit, each = per] = per === undefined ? words.next().split("/") : [undefined];
  const burst = words.takes("burst") ? { burst: words.number() } : unit === undefined ? { burst: 5 } : {};
  const burstUnit = "burst" in burst && !words.takes("packets") ? words.takesOf(BYTES) : undefined;
  return {
    ...{ rate: Number(rate), ...burst, per: each },
    ...inv,
    ...(unit !== undefined && { rate_unit: unit }),
    ...(burstUnit !== undefined && { burst_unit: burstUnit }),
  };
}

function readQuota(words: WordReader): unknown {
  const inv = words.takes("over") ? { inv: true } : {};
  words.takes("until");
  const quota = { val: words.number(), val_unit: words.next() };
  const used = words.takes("used") ? { used: words.number(), used_unit: words.next() } : {};
  return { ...quota, ...used, ...inv };
}

function readConnectionCount(words: WordReader): unknown {
  const inv = words.takes("over") ? { inv: true } : {};
  return { val: words.number(), ...inv };
}

function readLast(words: WordReader): null {
  if (words.takes("used")) words.next();
  return null;
}

/** Each reads what follows the name of the statement. */
export const RATES = {
  counter: readCounter,
  limit: readLimit,
  quota: readQuota,
  last: readLast,
  "ct count": readConnectionCount,
} as const;

/** A statement of a set or an element; undefined if none follows. */
export function readRate(words: WordReader): object | undefined {
  const word = words.takesOf(new Set(["counter", "limit", "quota", "last", "ct"]));
  if (word === undefined) return undefined;
  if (word === "ct") words.expect("count");
  const name = (word === "ct" ? "ct count" : word) as keyof typeof RATES; // the words above
  return { [name]: RATES[name](words) };
}
