/** `kube-proxy render` in userspace mode: the input of iptables-restore, what iptables-save prints, or the plan as data. */

import { type ModeRenderer, planAsData, toolName } from "../rendering.ts";
import type { UserspacePlanData } from "./cluster-plan.ts";
import { planData, planOfService, planUserspace, restoreInput, savedInput } from "./cluster-plan.ts";
import { plannedTables } from "./planned-tables.ts";

export const renderUserspace: ModeRenderer<UserspacePlanData> = async (node, request) => {
  const { config, form, service } = request;
  if (form === "tables") return { kind: "tables", tables: plannedTables(node, config).tables };
  const whole = planUserspace(node, config);
  const plan = service === undefined ? whole : planOfService(whole, service);
  switch (form) {
    case "json":
      return planAsData(node, request, planData(plan));
    case "iptables-save": {
      const text = savedInput(plan);
      if (text === undefined) throw new Error("--output iptables-save: userspace.rules is none, so there are no rules");
      return { kind: "text", text, tool: toolName(node, "save") };
    }
    default:
      return { kind: "text", text: restoreInput(plan), tool: plan.hasRules ? toolName(node, "restore") : node.family };
  }
};
