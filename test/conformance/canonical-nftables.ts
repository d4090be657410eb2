/**
 * Makes two listings of `nft -j list ruleset` comparable: handles, indexes, counters and expiry do not count, elements are
 * sets, objects come in any order but the rules of one chain in theirs.
 */

const IGNORED = new Set(["handle", "index", "expires"]);

type JsonObject = { readonly [key: string]: unknown };

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param objects the `nftables` array. @returns one line per object, sorted; rules grouped by chain in order. */
export function canonicalNftables(objects: readonly unknown[]): string {
  const lines: string[] = [];
  const ruleCounts = new Map<string, number>();
  for (const object of objects) {
    if (!isObject(object) || "metainfo" in object) continue;
    const text = JSON.stringify(canonical(object));
    const { rule } = object;
    if (!isObject(rule)) {
      lines.push(text);
      continue;
    }
    const chain = `${rule.family} ${rule.chain}`;
    const index = ruleCounts.get(chain) ?? 0;
    ruleCounts.set(chain, index + 1);
    lines.push(`rule ${chain} ${String(index).padStart(5, "0")} ${text}`);
  }
  return `${lines.sort().join("\n")}\n`;
}

function canonical(value: unknown, key = ""): unknown {
  if (Array.isArray(value)) {
    const items = value.map((item) => canonical(item));
    return key === "elem" ? items.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)) : items;
  }
  if (!isObject(value)) return value;
  const entries = Object.entries(value).filter(([name]) => !IGNORED.has(name));
  // Of a counter in a rule its numbers do not count; one with a name is an object, or named by a rule.
  const isNumbers = isObject(value.counter) && !("name" in value.counter);
  const counter = isNumbers ? [["counter", {}] as const] : [];
  return Object.fromEntries(
    [...entries.filter(([name]) => name !== "counter" || !isNumbers), ...counter]
      .map(([name, item]) => [name, canonical(item, name)] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}
