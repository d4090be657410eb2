/** Plans of iptables rules: of one service port, and of those that belong to none. */
import type { IptablesTable, RulePosition } from "../../../kernel/iptables/iptables.ts";
import type { ChainName, Rule } from "../../../kernel/iptables/rule.ts";
import { ruleLines } from "../../../kernel/iptables/rule-text.ts";

/** A rule in a built-in chain that leads into one of ours. `isShared` ones belong to the kubelet too and outlive cleanup. */
export interface JumpRule {
  readonly table: IptablesTable;
  readonly rule: Rule;
  readonly target: ChainName;
  readonly isShared: boolean;
  /** @default "head" */
  readonly position?: RulePosition;
}

/** The static part of a full payload, by place. */
export interface StaticPlan {
  readonly filterChains: readonly ChainName[];
  readonly natChains: readonly ChainName[];
  /** Before the rules of services. */
  readonly filterHead: readonly Rule[];
  /** After the rules of services. */
  readonly filterTail: readonly Rule[];
  readonly natHead: readonly Rule[];
  /** Last of all: the jumps to the node ports. */
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

/** Whether two static plans have the same rules. Pure. */
export function equalStaticRules(a: StaticPlan, b: StaticPlan): boolean {
  return (["filterHead", "filterTail", "natHead", "natTail"] as const).every(
    (place) => ruleLines("append", a[place]) === ruleLines("append", b[place]),
  );
}

/** The tables that service ports have rules in. */
export type ServiceTable = Exclude<IptablesTable, "mangle">;

/** A rule in a chain that several service ports share. */
export interface SharedRule {
  readonly table: ServiceTable;
  readonly rule: Rule;
}

export interface ServicePortPlan {
  /** Entries in top-level chains; their order counts within one chain. */
  readonly shared: readonly SharedRule[];
  /** nat chains that this port alone owns, in the order of declaration. */
  readonly ownChains: readonly ChainName[];
  /** Rules of those chains. */
  readonly ownRules: readonly Rule[];
  /** A Local policy with endpoints somewhere and none here (metric `sync_proxy_rules_no_local_endpoints_total`). */
  readonly lacksLocal: { readonly internal: boolean; readonly external: boolean };
}
