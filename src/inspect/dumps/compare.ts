/** What differs between two inventories: what is wanted, and what is found. Pure. */
import type { Holder, Inventory } from "./inventory.ts";

/** One chain, set, virtual server or frontend of sockets that is not as it is wanted. */
export interface Difference {
  readonly state: "missing" | "extra" | "changed" | "moved";
  readonly kind: Holder["kind"] | "frontend";
  readonly place: string;
  readonly name: string;
  /** Lines that are wanted and not there. */
  readonly missing: readonly string[];
  /** Lines that are there and not wanted. */
  readonly extra: readonly string[];
}

/** Which of what is found is this program's, though it is not wanted. */
export interface Ownership {
  /** A chain, a set, a virtual server. */
  isOurs(holder: Holder): boolean;
  /** A rule in one of the kernel's own chains. */
  isOurRule(line: string): boolean;
  /** Chains in which the order of rules means nothing. */
  isUnordered(name: string): boolean;
  /** Another program has rules in this chain, too. */
  isShared(name: string): boolean;
}

/** Compares place by place; places that `found` does not tell about are passed over. */
export function compareInventories(wanted: Inventory, found: Inventory, ownership: Ownership): Difference[] {
  const differences: Difference[] = [];
  for (const [key, holder] of wanted.holders) {
    if (!found.places.has(holder.place)) continue;
    const other = found.holders.get(key);
    if (other === undefined) {
      // A built-in chain without rules of ours, in a table that has not been used yet.
      if (holder.isBuiltIn && holder.lines.length === 0) continue;
      differences.push({ ...identity(holder), state: "missing", missing: holder.lines, extra: [] });
      continue;
    }
    const difference = compareHolders(said(holder, found), other, ownership);
    if (difference !== undefined) differences.push(difference);
  }
  for (const [key, holder] of found.holders) {
    if (wanted.holders.has(key) || holder.isBuiltIn || !ownership.isOurs(holder)) continue;
    // Of a family that was not asked for.
    if (isOfOtherFamily(holder.place, wanted)) continue;
    differences.push({ ...identity(holder), state: "extra", missing: [], extra: holder.lines });
  }
  // Tables that are wanted and are not in the dump at all.
  for (const place of wanted.places) {
    if (found.places.has(place) || found.kind !== wanted.kind) continue;
    // A dump without any table of ours tells of no family that it would leave out.
    if (isOfOtherFamily(place, found)) continue;
    for (const holder of wanted.holders.values()) {
      if (holder.place !== place || (holder.isBuiltIn && holder.lines.length === 0)) continue;
      differences.push({ ...identity(holder), state: "missing", missing: holder.lines, extra: [] });
    }
  }
  return differences;
}

function said(holder: Holder, { unsaid }: Inventory): Holder {
  return unsaid === undefined ? holder : { ...holder, lines: holder.lines.filter((line) => !unsaid.test(line)) };
}

function isOfOtherFamily(place: string, { places }: Inventory): boolean {
  const family = place.split(" ")[0] ?? "";
  return places.size > 0 && ![...places].some((other) => other.split(" ")[0] === family);
}

function identity({ kind, place, name }: Holder): Pick<Difference, "kind" | "place" | "name"> {
  return { kind, place, name };
}

function compareHolders(wanted: Holder, found: Holder, ownership: Ownership): Difference | undefined {
  if (wanted.isDynamic) return undefined;
  const missing = without(wanted.lines, found.lines);
  const surplus = without(found.lines, wanted.lines);
  const extra = wanted.isBuiltIn
    ? surplus.filter((line) => ownership.isOurRule(line))
    : ownership.isShared(wanted.name)
      ? []
      : surplus;
  if (missing.length > 0 || extra.length > 0) return { ...identity(wanted), state: "changed", missing, extra };
  const hasOrder = wanted.isOrdered && !wanted.isBuiltIn && !ownership.isUnordered(wanted.name);
  const isMoved = hasOrder && surplus.length === 0 && wanted.lines.some((line, index) => line !== found.lines[index]);
  return isMoved ? { ...identity(wanted), state: "moved", missing: [], extra: [] } : undefined;
}

/** The lines that are not among the others, which count once each. */
function without(lines: readonly string[], others: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const line of others) counts.set(line, (counts.get(line) ?? 0) + 1);
  return lines.filter((line) => {
    const count = counts.get(line) ?? 0;
    counts.set(line, count - 1);
    return count <= 0;
  });
}
