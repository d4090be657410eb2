/** `kube-proxy render` in ipvs mode: the input of the four tools that could do it, or the plan as data. */

import { type ModeRenderer, planAsData, toolName } from "../rendering.ts";
import type { IpvsPlanData } from "./cluster-plan.ts";
import {
  allInputs,
  ipInput,
  ipsetInput,
  iptablesInput,
  ipvsadmInput,
  planData,
  planIpvs,
  savedInput,
} from "./cluster-plan.ts";

import { virtualServerDump } from "./walk-virtual-servers.ts";

export const renderIpvs: ModeRenderer<IpvsPlanData> = async (node, request) => {
  const { config, form, service } = request;
  const plan = planIpvs(node, config, service);
  const restore = toolName(node, "restore");
  const textFor = (tool: string | undefined, text: string) => ({ kind: "text" as const, text, tool });
  switch (form) {
    case "ip":
      return textFor(undefined, ipInput(plan));
    case "ipset":
      return textFor(undefined, ipsetInput(plan));
    case "ipvsadm":
      return textFor(undefined, ipvsadmInput(plan));
    case "virtual-servers":
      return { kind: "dump", dump: virtualServerDump(ipvsadmInput(plan)) };
    case "iptables":
      return textFor(restore, iptablesInput(plan));
    case "iptables-save":
      return textFor(toolName(node, "save"), savedInput(plan, node.family));
    case "json":
      return planAsData(node, request, planData(plan));
    default:
      return textFor(node.family, allInputs(plan, restore));
  }
};
