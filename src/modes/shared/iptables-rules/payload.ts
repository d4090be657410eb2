/**
 * The input of iptables-restore. Every part of the text has an owner, so that the line in an error of the tool leads to
 * a Service. Reference iptables.md §4, iptables-operation.md §9.3.
 */
import type { Iptables } from "../../../kernel/iptables/iptables.ts";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { lineCount } from "./owner-rules.ts";
import type { ServiceTable } from "./rules-plan.ts";

/** Lines of a payload with their owner: the key of a service port, `chain NAME` for a stale chain, or undefined. */
interface PayloadPart {
  readonly owner: string | undefined;
  /** Ends in a line feed. */
  readonly text: string;
}

/** The lines between `*TABLE` and `COMMIT`: they take effect together, or not at all. */
export interface Transaction {
  readonly table: ServiceTable;
  readonly parts: readonly PayloadPart[];
}

/** How many rules a payload writes, per table, for the metric `…_iptables_last`. */
export type WrittenRules = Readonly<Record<ServiceTable, number>>;

export function addWritten(a: WrittenRules, b: WrittenRules): WrittenRules {
  return { filter: a.filter + b.filter, nat: a.nat + b.nat };
}

export interface Payload {
  readonly transactions: readonly Transaction[];
  readonly written: WrittenRules;
}

/** The text of the transactions, in pieces. */
export function* textsOf(transactions: readonly Transaction[]): Generator<string> {
  for (const { table, parts } of transactions) {
    yield `*${table}\n`;
    for (const { text } of parts) yield text;
    yield "COMMIT\n";
  }
}

/** Sends a payload unless it is empty; resolves to its counts. @throws IptablesRestoreError */
export async function send(iptables: Iptables, { transactions, written }: Payload): Promise<WrittenRules> {
  if (transactions.length > 0) await iptables.restore(textsOf(transactions));
  return written;
}

/** The owner of a 1-based line of a payload; undefined for lines without an owner, lines outside, and no line. */
export function ownerOfLine({ transactions }: Payload, line = 0): string | undefined {
  let first = 1;
  for (const { parts } of transactions) {
    first += 1;
    for (const { owner, text } of parts) {
      const next = first + lineCount(text);
      if (line >= first && line < next) return owner;
      first = next;
    }
    first += 1;
  }
  return undefined;
}

/** Collects the parts of a transaction; empty ones are left out. */
export class PartList {
  readonly parts: PayloadPart[] = [];

  add(owner: string | undefined, text: string): void {
    if (text !== "") this.parts.push({ owner, text });
  }
}

const STALE_CHAIN = "chain ";

/** The owner of a stale chain in parts and failures. */
export function staleChainOwner(chain: ChainName): string {
  return STALE_CHAIN + chain;
}

/** The stale chain that an owner stands for; undefined for service ports. */
export function staleChainOf(owner: string): ChainName | undefined {
  // Made from a chain's name by staleChainOwner.
  return owner.startsWith(STALE_CHAIN) ? (owner.slice(STALE_CHAIN.length) as ChainName) : undefined;
}
