/** `kube-proxy render` in iptables mode: the input of iptables-restore, or the plan as data. */
import { planData, planIptables, restoreInput } from "../../inspect/iptables-plan.ts";
import type { ModeRenderer } from "../dataplane.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";
import { planJson } from "../shared/plan-json.ts";

export const renderIptables: ModeRenderer = async (node, config, form) => {
  const { family, nodePortAddresses } = node;
  const plan = planIptables(
    node.state,
    {
      family,
      nodeName: node.name,
      nodeIP: node.nodeIP,
      masqueradeMark: masqueradeMarkOf(config.iptables),
      masqueradeAll: config.masqueradeAll,
      detector: node.detector,
      localhostNodePorts: family === "IPv4" && config.iptables.localhostNodePorts && nodePortAddresses.containsLoopback,
      hasRandomFully: true,
      conntrackLiberal: config.conntrack.tcpBeLiberal,
    },
    {
      zone: node.zone,
      nodePortIPs: node.nodePortIPs,
      counters: { ctStateInvalid: true, localhostNodePorts: true },
    },
  );
  return form === "text" ? restoreInput(plan) : planJson(node, config, planData(plan));
};
