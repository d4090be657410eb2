/** `kube-proxy render` in userspace mode: the input of iptables-restore, or the plan as data. */
import { planData, planUserspace, restoreInput } from "../../inspect/userspace-plan.ts";
import type { ModeRenderer } from "../dataplane.ts";
import { planJson } from "../shared/plan-json.ts";

export const renderUserspace: ModeRenderer = async (node, config, form) => {
  const plan = planUserspace(node, config);
  return form === "text" ? restoreInput(plan) : planJson(node, config, planData(plan));
};
