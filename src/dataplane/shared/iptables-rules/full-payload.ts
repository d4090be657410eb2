/** The payload that leaves exactly these rules in our chains. Reference iptables.md §4, iptables-operation.md §9. Pure. */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { type InstalledRules, inTable } from "./installed-rules.ts";
import { PartList, type Payload, staleChainOwner, type Transaction, type WrittenRules } from "./payload.ts";
import { chainLines, deletionLines, ruleLines } from "./restore-lines.ts";
import type { ServicePortPlan, StaticPlan } from "./rules-plan.ts";

/** The lines of a service port in a full payload, by where they stand there. */
export interface SpelledPlan {
  readonly filterShared: string;
  readonly natShared: string;
  readonly ownChains: string;
  readonly ownRules: string;
  /** Rules in these lines. */
  readonly count: WrittenRules;
}

/**
 * Spells a plan, to be written with a full payload: plans of a whole cluster would take several times the memory of their
 * text. Throws a RangeError for names that cannot be written into a rule.
 */
export function spellPlan({ shared, ownChains, ownRules }: ServicePortPlan): SpelledPlan {
  const filter = inTable(shared, "filter");
  const nat = inTable(shared, "nat");
  return {
    filterShared: ruleLines("append", filter),
    natShared: ruleLines("append", nat),
    ownChains: chainLines(ownChains),
    ownRules: ruleLines("append", ownRules),
    count: { filter: filter.length, nat: nat.length + ownRules.length },
  };
}

/** An owner whose last known good rules stay as they are while everything around them is rewritten. */
export interface KeptOwner {
  readonly owner: string;
  readonly rules: InstalledRules;
}

/** What a full payload consists of. */
export interface FullPayloadInput {
  readonly plan: StaticPlan;
  readonly ports: Iterable<SpelledPort>;
  readonly kept?: readonly KeptOwner[];
  /** nat chains of ours that nothing needs any more. */
  readonly staleChains?: readonly ChainName[];
  /** The same, but a rule of another program jumps there: they are only emptied. */
  readonly heldChains?: readonly ChainName[];
  /**
   * Rewrites the own chains of so many ports in a nat transaction by itself, before the one with all the rest. A port
   * still changes at once, and the shared chains lead to it last. For iptables-nft-restore, whose time grows with the
   * square of the chains that one transaction names (docs/performance.md). @default one nat transaction for everything
   */
  readonly portsPerTransaction?: number;
}

type SpelledPort = readonly [owner: string, plan: SpelledPlan];

/** Builds the payload: a transaction of filter, and then those of nat. */
export function fullPayload(input: FullPayloadInput): Payload {
  const { plan, kept = [], portsPerTransaction } = input;
  const ports = [...input.ports];
  const transactions: Transaction[] = [filterTransaction(plan, ports, kept)];
  if (portsPerTransaction !== undefined) transactions.push(...ownChainTransactions(plan, ports, portsPerTransaction));
  transactions.push(natTransaction(input, ports, portsPerTransaction === undefined));
  return { transactions, written: rulesWritten(plan, ports, kept) };
}

function filterTransaction(plan: StaticPlan, ports: readonly SpelledPort[], kept: readonly KeptOwner[]): Transaction {
  const list = new PartList();
  list.add(undefined, chainLines(plan.filterChains) + ruleLines("append", plan.filterHead));
  for (const [owner, { filterShared }] of ports) list.add(owner, filterShared);
  for (const { owner, rules } of kept) list.add(owner, ruleLines("append", inTable(rules.shared, "filter")));
  list.add(undefined, ruleLines("append", plan.filterTail));
  return { table: "filter", parts: list.parts };
}

function natTransaction(input: FullPayloadInput, ports: readonly SpelledPort[], hasOwnChains: boolean): Transaction {
  const { plan, kept = [], staleChains = [], heldChains = [] } = input;
  const list = new PartList();
  list.add(undefined, chainLines(plan.natChains));
  if (hasOwnChains) for (const [owner, { ownChains }] of ports) list.add(owner, ownChains);
  for (const chain of [...staleChains, ...heldChains]) list.add(staleChainOwner(chain), chainLines([chain]));
  list.add(undefined, ruleLines("append", plan.natHead));
  for (const [owner, { natShared, ownRules }] of ports) {
    list.add(owner, natShared);
    if (hasOwnChains) list.add(owner, ownRules);
  }
  for (const { owner, rules } of kept) list.add(owner, ruleLines("append", inTable(rules.shared, "nat")));
  for (const chain of staleChains) list.add(staleChainOwner(chain), deletionLines([chain]));
  list.add(undefined, ruleLines("append", plan.natTail));
  return { table: "nat", parts: list.parts };
}

/** Transactions with the own chains of some ports each, after one with the static chains that their rules jump to. */
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

function rulesWritten(plan: StaticPlan, ports: readonly SpelledPort[], kept: readonly KeptOwner[]): WrittenRules {
  let filter = plan.filterHead.length + plan.filterTail.length;
  let nat = plan.natHead.length + plan.natTail.length;
  for (const [, { count }] of ports) {
    filter += count.filter;
    nat += count.nat;
  }
  for (const { rules } of kept) {
    filter += inTable(rules.shared, "filter").length;
    nat += inTable(rules.shared, "nat").length;
  }
  return { filter, nat };
}
