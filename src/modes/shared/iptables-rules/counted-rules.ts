/** Rules in shared chains, where the rules of most service ports only need to be counted. */
import type { OtherPort } from "../../../contract/inspect/offline-node.ts";
import type { SharedRule } from "./rules-plan.ts";
import type { PlacedInTable } from "./saved-form.ts";

/**
 * The shared rules of all service ports in key order.
 *
 * @param planned rules by key.
 * @param others ports with as many rules in each chain as the planned port that they are like.
 * @param keys all keys, in order.
 * @param opened by key of other ports: rules in chains that are listed in full, because the packet in question may meet them.
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
