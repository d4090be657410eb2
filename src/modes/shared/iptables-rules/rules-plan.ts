/** Plans of iptables rules: those of one service port, and the static ones. */
import type { IptablesTable, RulePosition } from "../../../kernel/iptables/iptables.ts";
import type { ChainName, Rule } from "../../../kernel/iptables/rule.ts";
import { ruleLines } from "../../../kernel/iptables/rule-text.ts";

/** A rule in a built-in chain that jumps to one of ours. If `isShared`, the kubelet uses it too, and cleanup leaves it. */
export interface JumpRule {
  readonly table: IptablesTable;
  readonly rule: Rule;
  readonly target: ChainName;
  readonly isShared: boolean;
  /** @default "head" */
  readonly position?: RulePosition;
}

/** The static part of a full payload, by table and position. */
export interface StaticPlan {
  readonly filterChains: readonly ChainName[];
  readonly natChains: readonly ChainName[];
  /** Before the rules of Services. */
  readonly filterHead: readonly Rule[];
  /** After the rules of Services. */
  readonly filterTail: readonly Rule[];
  readonly natHead: readonly Rule[];
  /** At the very end: the jumps to the node ports. */
  readonly natTail: readonly Rule[];
}

export const NOTHING_STATIC: StaticPlan = {
  filterChains: [],
  natChains: [],
  filterHead: [],
  filterTail: [],
  natHead: [],
  natTail: [],
};

/** Whether two static plans have the same rules. */
export function equalStaticRules(a: StaticPlan, b: StaticPlan): boolean {
  return (["filterHead", "filterTail", "natHead", "natTail"] as const).every(
    (place) => ruleLines("append", a[place]) === ruleLines("append", b[place]),
  );
}

/** The tables in which service ports have rules. */
export type ServiceTable = Exclude<IptablesTable, "mangle">;

/** A rule in a chain that several service ports share. */
export interface SharedRule {
  readonly table: ServiceTable;
  readonly rule: Rule;
}

export interface ServicePortPlan {
  /** Entries in top-level chains; their order matters within a chain. */
  readonly shared: readonly SharedRule[];
  /** nat chains that this port owns alone, in order of declaration. */
  readonly ownChains: readonly ChainName[];
  /** Rules of those chains. */
  readonly ownRules: readonly Rule[];
}
