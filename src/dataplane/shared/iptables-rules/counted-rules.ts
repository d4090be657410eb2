/** Rules in shared chains, where those of most service ports only need to be counted. Pure. */
import type { OtherPort } from "../../../inspect/offline-node.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import type { SharedRule } from "./rules-plan.ts";
import type { InTable, UnplannedRules } from "./saved-form.ts";

/**
 * The shared rules of all service ports in the order of their keys. Those that are counted between two others come as one.
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
): (readonly InTable<Rule | UnplannedRules>[])[] {
  const found: (readonly InTable<Rule | UnplannedRules>[])[] = [];
  const countsOf = new Map<string, readonly InTable<UnplannedRules>[]>();
  const openedChains = new Set([...opened.values()].flatMap((rules) => rules.map(({ rule }) => rule.chain)));
  const isCounted = ({ rule }: SharedRule): boolean => !openedChains.has(rule.chain);
  const likeOf = new Map(others.map(({ key, like }) => [key, like]));
  /** How often each planned one is to be counted. */
  const between = new Map<string, number>();
  const flush = (): void => {
    for (const [like, times] of between) {
      const counts = countsOf.get(like) ?? countsIn(planned.get(like)?.filter(isCounted) ?? []);
      countsOf.set(like, counts);
      found.push(counts.map(({ table, rule }) => ({ table, rule: { ...rule, count: rule.count * times } })));
    }
    between.clear();
  };
  for (const key of keys) {
    const like = likeOf.get(key);
    if (like !== undefined) {
      between.set(like, (between.get(like) ?? 0) + 1);
      const own = opened.get(key);
      if (own === undefined) continue;
      flush();
      found.push(own);
    } else {
      flush();
      found.push(planned.get(key) ?? []);
    }
  }
  flush();
  return found;
}

/** The number of rules in each chain. */
function countsIn(rules: readonly SharedRule[]): InTable<UnplannedRules>[] {
  const groups = Map.groupBy(rules, ({ table, rule }) => `${table} ${rule.chain}`);
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    return first === undefined ? [] : [{ table: first.table, rule: { chain: first.rule.chain, count: group.length } }];
  });
}
