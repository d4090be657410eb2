/** `kube-proxy render` in iptables mode: the input of iptables-restore, what iptables-save prints, or the plan as data. */

import { type ModeRenderer, planAsData, toolName } from "../rendering.ts";
import type { IptablesPlanData } from "./cluster-plan.ts";
import { planData, planIptables, plannedTables, planOfService, restoreInput, savedInput } from "./cluster-plan.ts";
import { planInput } from "./plan-input.ts";

export const renderIptables: ModeRenderer<IptablesPlanData> = async (node, request) => {
  const { config, form, missing, service } = request;
  const options = planInput(config, node, missing);
  if (form === "tables") {
    const tables = plannedTables(node.state, options.config, options.facts, node.family, node.others);
    return { kind: "tables", tables };
  }
  const whole = planIptables(node.state, options.config, options.facts);
  const plan = service === undefined ? whole : planOfService(whole, service);
  switch (form) {
    case "json":
      return planAsData(node, request, planData(plan));
    case "iptables-save":
      return { kind: "text", text: savedInput(plan, node.family), tool: toolName(node, "save") };
    default:
      return { kind: "text", text: restoreInput(plan), tool: toolName(node, "restore") };
  }
};
