/**
 * What the iptables mode would program for a cluster on one node, without a kernel: as restore input or as data. Pure.
 */
import { fullPayload } from "../backends/iptables/payload.ts";
import { LARGE_CLUSTER_ENDPOINTS, type PlanConfig, type PlanFacts } from "../backends/iptables/plan-options.ts";
import { planServicePort, type ServicePortPlan } from "../backends/iptables/plan-service-port.ts";
import { JUMP_RULES, planStatic, type StaticPlan } from "../backends/iptables/plan-static.ts";
import { spellPlan } from "../backends/iptables/port-rules.ts";
import type { IptablesTable } from "../kernel/iptables/iptables.ts";
import type { Rule } from "../kernel/iptables/rule.ts";
import { ruleSpec } from "../kernel/iptables/rule-text.ts";
import type { ProxyState } from "../model/proxy-state.ts";
import type { ServicePort } from "../model/service-port.ts";

/** A planned cluster: what belongs to nobody, and each service port's part, sorted by key. */
export interface IptablesPlan {
  readonly fixed: StaticPlan;
  readonly ports: readonly { readonly port: ServicePort; readonly plan: ServicePortPlan }[];
}

/** Plans a whole cluster. */
export function planIptables(
  state: ProxyState,
  config: PlanConfig,
  facts: Omit<PlanFacts, "isLargeCluster">,
): IptablesPlan {
  const all: PlanFacts = { ...facts, isLargeCluster: state.endpointCount > LARGE_CLUSTER_ENDPOINTS };
  const keys = [...state.services.keys()].sort();
  const ports = keys.flatMap((key) => {
    const port = state.services.get(key);
    if (port === undefined) return [];
    return [{ port, plan: planServicePort(port, state.endpoints.get(key) ?? [], config, all) }];
  });
  return { fixed: planStatic(config, all), ports };
}

/** The input of `iptables-restore` that a full sync sends. Throws a RangeError for names that no rule can carry. */
export function restoreInput({ fixed, ports }: IptablesPlan): string {
  const spelled = ports.map(({ port, plan }) => [port.name.key, spellPlan(plan)] as const);
  return fullPayload({ plan: fixed, ports: spelled })
    .parts.map((part) => part.text)
    .join("");
}

interface RuleData extends Rule {
  /** As in the restore input. */
  readonly text: string;
}

/** The plan as plain data, for programs. Keys and lists come in a fixed order. */
export function planData({ fixed, ports }: IptablesPlan) {
  const data = (rule: Rule): RuleData => ({ ...rule, text: ruleSpec(rule) });
  const inTable = (table: IptablesTable, rules: readonly Rule[]) => rules.map((rule) => ({ table, ...data(rule) }));
  return {
    jumps: JUMP_RULES.map(({ table, rule }) => ({ table, ...data(rule) })),
    chains: { filter: fixed.filterChains, nat: fixed.natChains },
    rules: [
      ...inTable("filter", [...fixed.filterHead, ...fixed.filterTail]),
      ...inTable("nat", [...fixed.natHead, ...fixed.natTail]),
    ],
    servicePorts: ports.map(({ port, plan }) => ({
      name: port.name.text,
      protocol: port.protocol,
      chains: plan.ownChains,
      dispatch: plan.shared.map(({ table, rule }) => ({ table, ...data(rule) })),
      rules: plan.ownRules.map(data),
    })),
  };
}
