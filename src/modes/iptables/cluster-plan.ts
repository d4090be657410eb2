/** Plans the rules of the iptables mode for a cluster on one node, without a kernel: as restore input or as data. */
import type { OtherPort } from "../../contract/inspect/offline-node.ts";
import { type ModeRenderer, planAsData, toolName } from "../../contract/rendering.ts";
import type { IptablesTable } from "../../kernel/iptables/iptables.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import { ruleSpec } from "../../kernel/iptables/rule-text.ts";
import type { ServedState } from "../../model/proxy-state.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpFamily } from "../../net/ip.ts";
import { CHAINS } from "../shared/iptables-rules/chain-names.ts";
import { withCounts } from "../shared/iptables-rules/counted-rules.ts";
import { fullPayload } from "../shared/iptables-rules/full-payload.ts";
import { spell } from "../shared/iptables-rules/owner-rules.ts";
import { textsOf } from "../shared/iptables-rules/payload.ts";
import {
  type JumpRule,
  NOTHING_STATIC,
  type ServicePortPlan,
  type StaticPlan,
} from "../shared/iptables-rules/rules-plan.ts";
import { savedText, tableContents, tableTexts } from "../shared/iptables-rules/saved-form.ts";
import { JUMP_RULES } from "../shared/iptables-rules/top-level-rules.ts";
import { type PlanConfig, type PlanFacts, planInput } from "./plan-options.ts";
import { planServicePort } from "./plan-service-port.ts";
import { planStatic } from "./plan-static.ts";

/** A planned cluster: the parts that belong to no service port, and the service ports' parts, sorted by key. */
interface IptablesPlan {
  readonly extent: "whole" | "part";
  readonly jumps: readonly JumpRule[];
  readonly fixed: StaticPlan;
  readonly canary: string | undefined;
  readonly ports: readonly { readonly port: ServicePort; readonly plan: ServicePortPlan }[];
}

function planIptables(state: ServedState, config: PlanConfig, facts: PlanFacts): IptablesPlan {
  const keys = [...state.services.keys()].sort();
  const ports = keys.flatMap((key) => {
    const port = state.services.get(key);
    if (port === undefined) return [];
    return [{ port, plan: planServicePort(port, state.endpoints.get(key) ?? [], config, facts) }];
  });
  return { extent: "whole", jumps: JUMP_RULES, fixed: planStatic(config, facts), canary: CHAINS.canary, ports };
}

/** The part of a plan that belongs to one Service. @param service `namespace/name` */
export function planOfService({ ports }: IptablesPlan, service: string): IptablesPlan {
  const own = ports.filter(({ port }) => port.name.service === service);
  return { extent: "part", jumps: [], fixed: NOTHING_STATIC, canary: undefined, ports: own };
}

/** The `iptables-restore` input of a full sync. Throws a RangeError for names that no rule can contain. */
function restoreInput({ fixed, ports }: IptablesPlan): string {
  const spelled = ports.map(({ port, plan }) => [port.name.key, spell(plan)] as const);
  return [...textsOf(fullPayload({ plan: fixed, ports: spelled }).transactions)].join("");
}

/**
 * A whole cluster's tables, for the tracer.
 *
 * @param others service ports outside the plan; their rules are only counted.
 */
function plannedTables({ ports, ...plan }: IptablesPlan, family: IpFamily, others: readonly OtherPort[] = []) {
  const sharedOf = new Map(ports.map((one) => [one.port.name.key, one.plan.shared]));
  const plans = ports.map((one) => one.plan);
  return tableTexts(tableContents({ ...plan, ports: plans, shared: withCounts(sharedOf, others) }), family);
}

/** The plan as plain data for programs, with keys and lists in a fixed order. */
function planData({ jumps, fixed, ports }: IptablesPlan) {
  /** The rule with its text from the restore input. */
  const data = (rule: Rule) => ({ ...rule, text: ruleSpec(rule) });
  const inTable = (table: IptablesTable, rules: readonly Rule[]) => rules.map((rule) => ({ table, ...data(rule) }));
  return {
    jumps: jumps.map(({ table, rule }) => ({ table, ...data(rule) })),
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

export type IptablesPlanData = ReturnType<typeof planData>;

export const renderIptables: ModeRenderer<IptablesPlanData> = async (node, request) => {
  const { config, form, missing, service } = request;
  const options = planInput(config, node, missing);
  const whole = planIptables(node.state, options.config, options.facts);
  if (form === "tables") {
    return { kind: "dump", dump: { kind: "iptables-tables", tables: plannedTables(whole, node.family, node.others) } };
  }
  const plan = service === undefined ? whole : planOfService(whole, service);
  switch (form) {
    case "json":
      return planAsData(node, request, planData(plan));
    case "iptables-save": {
      const contents = tableContents({ ...plan, ports: plan.ports.map((one) => one.plan) });
      return { kind: "text", text: savedText(contents, node.family, plan.extent), tool: toolName(node, "save") };
    }
    default:
      return { kind: "text", text: restoreInput(plan), tool: toolName(node, "restore") };
  }
};
