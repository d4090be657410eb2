/** The payload that leaves exactly these rules in our chains. Reference iptables.md §4, iptables-operation.md §9. */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines, deletionLines, ruleLines } from "../../../kernel/iptables/rule-text.ts";
import { lineCount, type OwnerRules, type SpelledRules } from "./owner-rules.ts";
import { PartList, type Payload, staleChainOwner, type Transaction, type WrittenRules } from "./payload.ts";
import type { StaticPlan } from "./rules-plan.ts";

interface FullPayloadInput {
  readonly plan: StaticPlan;
  readonly ports: Iterable<SpelledPort>;
  /** Owners whose last known good rules stay while everything else is rewritten. */
  readonly kept?: Iterable<readonly [owner: string, rules: OwnerRules]>;
  /** nat chains of ours that are no longer needed. */
  readonly staleChains?: readonly ChainName[];
  /** Likewise, but another program's rule jumps to them: they are only emptied. */
  readonly heldChains?: readonly ChainName[];
  /**
   * Rewrites the own chains of this many ports per nat transaction before the one with all the rest, and empties and
   * then deletes this many stale chains per transaction after it. A port still changes at once, and the shared chains
   * lead to it last. For iptables-nft-restore, whose time grows with the square of the chains that one transaction
   * names (docs/performance.md). @default one nat transaction for everything
   */
  readonly portsPerTransaction?: number;
}

type SpelledPort = readonly [owner: string, rules: SpelledRules];

/** Builds the payload: a filter transaction, then those of nat. */
export function fullPayload(input: FullPayloadInput): Payload {
  const { plan, staleChains = [], heldChains = [], portsPerTransaction } = input;
  const ports = [...input.ports];
  const kept = [...(input.kept ?? [])];
  const filter = new PartList();
  filter.add(undefined, chainLines(plan.filterChains) + ruleLines("append", plan.filterHead));
  for (const [owner, rules] of [...ports, ...kept]) filter.add(owner, rules.filter);
  filter.add(undefined, ruleLines("append", plan.filterTail));

  const isWhole = portsPerTransaction === undefined;
  const nat = new PartList();
  nat.add(undefined, chainLines(plan.natChains));
  if (isWhole) for (const [owner, { ownChains }] of ports) nat.add(owner, ownChains);
  const staleHere = isWhole ? staleChains : [];
  for (const chain of [...staleHere, ...heldChains]) nat.add(staleChainOwner(chain), chainLines([chain]));
  nat.add(undefined, ruleLines("append", plan.natHead));
  for (const [owner, rules] of ports) nat.add(owner, isWhole ? rules.nat + rules.ownRules : rules.nat);
  for (const [owner, rules] of kept) nat.add(owner, rules.nat);
  for (const chain of staleHere) nat.add(staleChainOwner(chain), deletionLines([chain]));
  nat.add(undefined, ruleLines("append", plan.natTail));

  const transactions: Transaction[] = [
    { table: "filter", parts: filter.parts },
    ...(isWhole ? [] : ownChainTransactions(plan, ports, portsPerTransaction)),
    { table: "nat", parts: nat.parts },
    // Emptied first, because they may jump to one another.
    ...(isWhole ? [] : [chainLines, deletionLines].flatMap(inPortions(staleChains, portsPerTransaction))),
  ];
  return { transactions, written: rulesWritten(plan, ports, kept) };
}

/** Transactions with the own chains of some ports each, after one with the static chains to which their rules jump. */
function ownChainTransactions(
  plan: StaticPlan,
  ports: readonly SpelledPort[],
  portsPerTransaction: number,
): readonly Transaction[] {
  const targets = [...new Set(plan.natHead.map(({ chain }) => chain))];
  const head = new PartList();
  head.add(undefined, chainLines(targets) + ruleLines("append", plan.natHead));
  const transactions: Transaction[] = [{ table: "nat", parts: head.parts }];
  const owning = ports.filter(([, { ownChains }]) => ownChains !== "");
  for (let first = 0; first < owning.length; first += portsPerTransaction) {
    const group = owning.slice(first, first + portsPerTransaction);
    const list = new PartList();
    for (const [owner, { ownChains }] of group) list.add(owner, ownChains);
    for (const [owner, { ownRules }] of group) list.add(owner, ownRules);
    transactions.push({ table: "nat", parts: list.parts });
  }
  return transactions;
}

function inPortions(chains: readonly ChainName[], most: number) {
  return (linesOf: (chains: readonly ChainName[]) => string): Transaction[] => {
    const parts = chains.map((chain) => ({ owner: staleChainOwner(chain), text: linesOf([chain]) }));
    const count = Math.ceil(parts.length / most);
    return Array.from({ length: count }, (_, n) => ({ table: "nat", parts: parts.slice(n * most, (n + 1) * most) }));
  };
}

function rulesWritten(
  plan: StaticPlan,
  ports: readonly SpelledPort[],
  kept: readonly (readonly [owner: string, rules: OwnerRules])[],
): WrittenRules {
  let filter = plan.filterHead.length + plan.filterTail.length;
  let nat = plan.natHead.length + plan.natTail.length;
  for (const [, { ownRuleCount }] of ports) nat += ownRuleCount;
  for (const [, rules] of [...ports, ...kept]) {
    filter += lineCount(rules.filter);
    nat += lineCount(rules.nat);
  }
  return { filter, nat };
}
