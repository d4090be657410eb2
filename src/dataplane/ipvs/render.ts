/** `kube-proxy render` in ipvs mode: the input of the four tools that could do it, or the plan as data. */
import {
  allInputs,
  ipInput,
  ipsetInput,
  iptablesInput,
  ipvsadmInput,
  planData,
  planIpvs,
} from "../../inspect/ipvs-plan.ts";
import type { ModeRenderer } from "../dataplane.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";
import { planJson } from "../shared/plan-json.ts";
import { schedulerOf } from "./config.ts";

export const renderIpvs: ModeRenderer = async (node, config, form) => {
  const plan = planIpvs(node, {
    masqueradeAll: config.masqueradeAll,
    masqueradeMark: masqueradeMarkOf(config.iptables),
    scheduler: schedulerOf(config.ipvs),
  });
  switch (form) {
    case "ip":
      return ipInput(plan);
    case "ipset":
      return ipsetInput(plan);
    case "ipvsadm":
      return ipvsadmInput(plan);
    case "iptables":
      return iptablesInput(plan);
    case "json":
      return planJson(node, config, planData(plan));
    default:
      return allInputs(plan, node.family === "IPv4" ? "iptables-restore" : "ip6tables-restore");
  }
};
