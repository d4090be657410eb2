/** `kube-proxy render` in kernelspace mode: the documents that HNS would be sent, as lines or as data. */
import { type ModeRenderer, planAsData } from "../rendering.ts";
import { type KernelspacePlanData, planKernelspace, unservedFrontends } from "./cluster-plan.ts";
import { hostDump } from "./walk-host-plan.ts";

/** The form for `trace` alone: the lines, and the frontends that have no load balancer. */
const TRACE_FORM = "load-balancers";

export const renderKernelspace: ModeRenderer<KernelspacePlanData> = async (node, request) => {
  const documents = planKernelspace(node, request.config, request.service);
  if (request.form === "json") {
    const data = documents.map(({ text, ...rest }) => ({ ...rest, settings: JSON.parse(text) }));
    return planAsData(node, request, { documents: data });
  }
  const lines = documents.map(({ call, purpose, text }) => `# ${purpose}\n${call} ${text}\n`);
  if (request.form === TRACE_FORM) {
    const unserved = unservedFrontends(node, request.config);
    lines.unshift(
      "# load balancers of HNS\n",
      ...unserved.map(([key, name]) => `# none at ${key}: ${name} has no endpoint that could be led to\n`),
    );
  }
  const text = lines.join("");
  return request.form === TRACE_FORM
    ? { kind: "dump", dump: hostDump(text, TRACE_FORM) }
    : { kind: "text", text, tool: node.family };
};
