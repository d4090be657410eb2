/**
 * Restore payloads: the whole of our rules, or the difference for some owners. Every piece of text remembers whose it is,
 * so that a line the tool complains about leads to a service. Reference iptables.md §4, iptables-operation.md §9.3. Pure.
 *
 * The difference touches only what changed: a service port's own chains are rewritten, and its entries in shared chains
 * are deleted and inserted by themselves, where upstream rewrites the shared chains of the whole cluster.
 */

import { appendLines, countOf, type InstalledRules, listOf, type PortRules } from "./port-rules.ts";
import type { StaticPlan } from "./rules-plan.ts";

/** Text of a payload with its owner: the key of a service port, `chain NAME` for a stale chain, or undefined. */
export interface PayloadPart {
  readonly owner: string | undefined;
  readonly text: string;
}

/** One owner's step from what is installed to what shall be; absent means nothing. */
export interface OwnerChange {
  readonly owner: string;
  readonly before?: InstalledRules;
  readonly after?: PortRules;
}

/** Rules written by a payload, per table, for the metric `…_iptables_last`. */
export interface WrittenRules {
  readonly filter: number;
  readonly nat: number;
}

export interface Payload {
  readonly parts: readonly PayloadPart[];
  readonly written: WrittenRules;
}

/** An owner whose last good rules stay as they are while everything around them is rewritten. */
export interface KeptOwner {
  readonly owner: string;
  readonly rules: InstalledRules;
}

type OwnedRules = readonly [owner: string, rules: PortRules];

/** What a full payload consists of. */
export interface FullPayloadInput {
  readonly plan: StaticPlan;
  readonly ports: Iterable<OwnedRules>;
  readonly kept?: readonly KeptOwner[];
  /** nat chains of ours that nobody needs any more. */
  readonly staleChains?: readonly string[];
  /** The same, but somebody else's rule jumps there: they are only emptied. */
  readonly heldChains?: readonly string[];
  /**
   * Rewrites the own chains of so many ports in a nat transaction by itself, before the one with all the rest. A port
   * still changes at once, and the shared chains lead to it last. For iptables-nft-restore, whose time grows with the
   * square of the chains that one transaction names (docs/performance.md). @default one nat transaction for everything
   */
  readonly portsPerTransaction?: number;
}

const chainLine = (name: string) => `:${name} - [0:0]\n`;
const commandLines = (command: string, specs: readonly string[]) =>
  specs.map((spec) => `${command} ${spec}\n`).join("");
// Whole lists at once: a full payload has a hundred thousand entries.
const chainLines = (joined: string) => (joined === "" ? "" : chainLine(joined.replaceAll("\n", " - [0:0]\n:")));
const append = (joined: string) => (joined === "" ? "" : `-A ${joined.replaceAll("\n", "\n-A ")}\n`);

/** The owner name of a stale chain in parts and failures. Pure. */
export function staleChainOwner(chain: string): string {
  return STALE_CHAIN + chain;
}

const STALE_CHAIN = "chain ";

/** The stale chain that an owner name stands for; undefined for service ports. Pure. */
export function staleChainOf(owner: string): string | undefined {
  return owner.startsWith(STALE_CHAIN) ? owner.slice(STALE_CHAIN.length) : undefined;
}

/** The step that deletes a stale chain. Pure. */
export function removalOf(chain: string): OwnerChange {
  const before: InstalledRules = {
    filterShared: "",
    natShared: "",
    ownChains: chain,
    ownRuleCount: 0,
    lacksInternal: false,
    lacksExternal: false,
  };
  return { owner: staleChainOwner(chain), before };
}

/** Builds the payload that leaves exactly these rules. Pure. */
export function fullPayload(input: FullPayloadInput): Payload {
  const { plan, kept = [], staleChains = [], heldChains = [], portsPerTransaction } = input;
  const ports = [...input.ports];
  const isSplit = portsPerTransaction !== undefined;
  const parts = new Parts();
  parts.add(undefined, `*filter\n${plan.filterChains.map(chainLine).join("")}${appendLines(plan.filterHead)}`);
  for (const [owner, { filterShared }] of ports) parts.add(owner, append(filterShared));
  for (const { owner, rules } of kept) parts.add(owner, append(rules.filterShared));
  parts.add(undefined, `${appendLines(plan.filterTail)}COMMIT\n`);

  if (isSplit) addOwnChainTransactions(parts, plan, ports, portsPerTransaction);

  parts.add(undefined, `*nat\n${plan.natChains.map(chainLine).join("")}`);
  if (!isSplit) for (const [owner, { ownChains }] of ports) parts.add(owner, chainLines(ownChains));
  for (const chain of [...staleChains, ...heldChains]) parts.add(staleChainOwner(chain), chainLine(chain));
  parts.add(undefined, appendLines(plan.natHead));
  for (const [owner, { natShared, ownText }] of ports) {
    parts.add(owner, append(natShared));
    if (!isSplit) parts.add(owner, ownText);
  }
  for (const { owner, rules } of kept) parts.add(owner, append(rules.natShared));
  for (const chain of staleChains) parts.add(staleChainOwner(chain), `-X ${chain}\n`);
  parts.add(undefined, `${appendLines(plan.natTail)}COMMIT\n`);
  return { parts: parts.list, written: rulesWritten(plan, ports, kept) };
}

/** The pieces of a payload in order; empty ones are left out. */
class Parts {
  readonly list: PayloadPart[] = [];
  add(owner: string | undefined, text: string): void {
    if (text !== "") this.list.push({ owner, text });
  }
}

/** Transactions with the own chains of some ports each, after one with the static chains that their rules jump to. */
function addOwnChainTransactions(
  parts: Parts,
  plan: StaticPlan,
  ports: readonly OwnedRules[],
  portsPerTransaction: number,
): void {
  const targets = [...new Set(plan.natHead.map(({ chain }) => chain))];
  parts.add(undefined, `*nat\n${targets.map(chainLine).join("")}${appendLines(plan.natHead)}COMMIT\n`);
  const owning = ports.filter(([, { ownChains }]) => ownChains !== "");
  for (let first = 0; first < owning.length; first += portsPerTransaction) {
    const group = owning.slice(first, first + portsPerTransaction);
    parts.add(undefined, "*nat\n");
    for (const [owner, { ownChains }] of group) parts.add(owner, chainLines(ownChains));
    for (const [owner, { ownText }] of group) parts.add(owner, ownText);
    parts.add(undefined, "COMMIT\n");
  }
}

function rulesWritten(plan: StaticPlan, ports: readonly OwnedRules[], kept: readonly KeptOwner[]): WrittenRules {
  let filter = plan.filterHead.length + plan.filterTail.length;
  let nat = plan.natHead.length + plan.natTail.length;
  for (const [, rules] of ports) {
    filter += countOf(rules.filterShared);
    nat += countOf(rules.natShared) + rules.ownRuleCount;
  }
  for (const { rules } of kept) {
    filter += countOf(rules.filterShared);
    nat += countOf(rules.natShared);
  }
  return { filter, nat };
}

/**
 * Builds the payload that takes these owners, and nobody else, from before to after. New entries of shared chains go to
 * the head, so the jump to the node ports stays last. A table without changes is left out; no parts means no work. Pure.
 */
export function deltaPayload(changes: readonly OwnerChange[]): Payload {
  const filter: PayloadPart[] = [];
  const chains: PayloadPart[] = [];
  const nat: PayloadPart[] = [];
  let filterCount = 0;
  let natCount = 0;
  for (const { owner, before, after } of changes) {
    const filterText = replaceShared(before?.filterShared ?? "", after?.filterShared ?? "");
    if (filterText !== "") {
      filter.push({ owner, text: filterText });
      filterCount += countOf(after?.filterShared ?? "");
    }
    const kept = new Set(listOf(after?.ownChains ?? ""));
    const dropped = listOf(before?.ownChains ?? "").filter((chain) => !kept.has(chain));
    const declared = chainLines(after?.ownChains ?? "") + dropped.map(chainLine).join("");
    if (declared !== "") chains.push({ owner, text: declared });
    const shared = replaceShared(before?.natShared ?? "", after?.natShared ?? "");
    const text = `${shared}${after?.ownText ?? ""}${commandLines("-X", dropped)}`;
    if (text !== "") nat.push({ owner, text });
    natCount += (shared === "" ? 0 : countOf(after?.natShared ?? "")) + (after?.ownRuleCount ?? 0);
  }
  const parts: PayloadPart[] = [];
  const table = (name: string, content: readonly PayloadPart[]) => {
    if (content.length === 0) return;
    parts.push({ owner: undefined, text: `*${name}\n` }, ...content, { owner: undefined, text: "COMMIT\n" });
  };
  table("filter", filter);
  table("nat", [...chains, ...nat]);
  return { parts, written: { filter: filterCount, nat: natCount } };
}

function replaceShared(before: string, after: string): string {
  if (before === after) return "";
  return commandLines("-D", listOf(before)) + commandLines("-I", listOf(after).toReversed());
}

/** The owner of a 1-based line of a payload; undefined for static lines and lines outside. Pure. */
export function ownerOfLine(payload: Payload, line: number): string | undefined {
  let first = 1;
  for (const { owner, text } of payload.parts) {
    const count = countOf(text) - 1; // every part ends in a line feed
    if (line < first + count) return owner;
    first += count;
  }
  return undefined;
}
