/** `kube-proxy render` in iptables mode: the input of iptables-restore, what iptables-save prints, or the plan as data. */

import { type ModeRenderer, planAsData, toolName } from "../rendering.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";
import { planData, planIptables, planOfService, restoreInput, savedInput } from "./cluster-plan.ts";

export const renderIptables: ModeRenderer = async (node, request) => {
  const { family, nodePortAddresses } = node;
  const { config, form, missing, service } = request;
  const hasCounters = !missing.has("nfacct");
  const whole = planIptables(
    node.state,
    {
      family,
      nodeName: node.name,
      nodeIP: node.nodeIP,
      masqueradeMark: masqueradeMarkOf(config.iptables),
      masqueradeAll: config.masqueradeAll,
      detector: node.detector,
      localhostNodePorts: family === "IPv4" && config.iptables.localhostNodePorts && nodePortAddresses.containsLoopback,
      hasRandomFully: !missing.has("random-fully"),
      conntrackLiberal: config.conntrack.tcpBeLiberal,
    },
    {
      zone: node.zone,
      nodePortIPs: node.nodePortIPs,
      counters: { ctStateInvalid: hasCounters, localhostNodePorts: hasCounters },
    },
  );
  const plan = service === undefined ? whole : planOfService(whole, service);
  switch (form) {
    case "json":
      return planAsData(node, request, planData(plan));
    case "iptables-save":
      return { kind: "text", text: savedInput(plan, family), tool: toolName(node, "save") };
    default:
      return { kind: "text", text: restoreInput(plan), tool: toolName(node, "restore") };
  }
};
