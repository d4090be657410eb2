/** Rules in shared chains, where those of most service ports only need to be counted. Pure. */
import type { OtherPort } from "../../../inspect/offline-node.ts";
import type { SharedRule } from "./rules-plan.ts";
import type { PlacedInTable } from "./saved-form.ts";

/**
 * The shared rules of all service ports in the order of their keys.
 *
 * @param planned by key.
 * @param others have as many rules in each chain as the planned ones that they are like.
 * @param keys of all, in order.
 * @param opened by key of others: rules in chains of which none is counted, for packets that are asked about may meet them.
 */
export function withCounts(
  planned: ReadonlyMap<string, readonly SharedRule[]>,
  others: readonly OtherPort[],
  keys: readonly string[] = [...planned.keys(), ...others.map(({ key }) => key)].sort(),
  opened: ReadonlyMap<string, readonly SharedRule[]> = new Map(),
): PlacedInTable[] {
  const openedChains = new Set([...opened.values()].flatMap((rules) => rules.map(({ rule }) => rule.chain)));
  const countedLike = new Map(
    Array.from(planned, ([key, rules]) => {
      const counted = rules.filter(({ rule }) => !openedChains.has(rule.chain));
      return [key, counted.map(({ table, rule: { chain } }): PlacedInTable => ({ table, rule: { chain } }))];
    }),
  );
  const rulesOf = new Map<string, readonly PlacedInTable[]>(planned);
  for (const { key, like } of others) rulesOf.set(key, countedLike.get(like) ?? []);
  const found: PlacedInTable[] = [];
  for (const key of keys) {
    for (const one of rulesOf.get(key) ?? []) found.push(one);
    for (const one of opened.get(key) ?? []) found.push(one);
  }
  return found;
}
