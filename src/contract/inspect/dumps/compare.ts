/** Compares two inventories: the wanted one and the one found. */
import type { Holder, Inventory } from "./inventory.ts";

/** One chain, set, virtual server or socket frontend that is not as wanted. */
export interface Difference {
  readonly state: "missing" | "extra" | "changed" | "moved";
  readonly kind: Holder["kind"] | "frontend";
  readonly place: string;
  readonly name: string;
  /** Lines that are wanted but not found. */
  readonly missing: readonly string[];
  /** Lines that are found but not wanted. */
  readonly extra: readonly string[];
}

/** Tells which of the things found belong to this program, although they are not wanted. */
export interface Ownership {
  isOurs(holder: Holder): boolean;
  /** A rule in one of the kernel's own chains. */
  isOurRule(line: string): boolean;
  /** Whether the order of rules in this chain does not matter. */
  isUnordered(name: string): boolean;
  /** Whether another program has rules in this chain too. */
  isShared(name: string): boolean;
}

/** Compares place by place; places that `found` does not cover are skipped, unless it should: then all in them is missing. */
export function compareInventories(wanted: Inventory, found: Inventory, ownership: Ownership): Difference[] {
  const all = [...wanted.holders];
  const covered = all.flatMap(([key, holder]) => {
    if (!found.places.has(holder.place)) return [];
    const other = found.holders.get(key);
    return other === undefined ? lacking(holder) : (compareHolders(said(holder, found), other, ownership) ?? []);
  });
  const extra = [...found.holders].flatMap(([key, holder]): readonly Difference[] => {
    if (wanted.holders.has(key) || holder.isBuiltIn || !ownership.isOurs(holder)) return [];
    // It belongs to a family that is not wanted.
    if (isOfOtherFamily(holder.place, wanted)) return [];
    return [{ ...identity(holder), state: "extra", missing: [], extra: holder.lines }];
  });
  // Wanted tables that the dump does not have at all. If it has tables of ours, a family that it lacks was left out on purpose.
  const absent = all.flatMap(([, holder]) =>
    found.places.has(holder.place) || isOfOtherFamily(holder.place, found) ? [] : lacking(holder),
  );
  return [...covered, ...extra, ...absent];
}

/** Nothing, for a built-in chain that the kernel has not created yet, and in which we want no rules. */
function lacking(holder: Holder): readonly Difference[] {
  if (holder.isBuiltIn && holder.lines.length === 0) return [];
  return [{ ...identity(holder), state: "missing", missing: holder.lines, extra: [] }];
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

/** How long something stays in a set that packets fill, of which no more is planned. */
const STAY = /^timeout /;

function compareHolders(wanted: Holder, found: Holder, ownership: Ownership): Difference | undefined {
  const planned = ({ lines }: Holder) => (wanted.isDynamic ? lines.filter((line) => STAY.test(line)) : lines);
  const missing = without(planned(wanted), planned(found));
  const surplus = without(planned(found), planned(wanted));
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

/** The lines that are not among the others, each of which cancels one line. */
function without(lines: readonly string[], others: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const line of others) counts.set(line, (counts.get(line) ?? 0) + 1);
  return lines.filter((line) => {
    const count = counts.get(line) ?? 0;
    counts.set(line, count - 1);
    return count <= 0;
  });
}
