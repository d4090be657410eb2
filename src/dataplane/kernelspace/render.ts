/** `kube-proxy render` in kernelspace mode: the documents that HNS would be sent, as lines or as data. */
import { type ModeRenderer, planAsData } from "../rendering.ts";
import { planKernelspace } from "./cluster-plan.ts";

export const renderKernelspace: ModeRenderer = async (node, request) => {
  const documents = planKernelspace(node, request.config, request.service);
  if (request.form === "json") {
    const data = documents.map(({ text, ...rest }) => ({ ...rest, settings: JSON.parse(text) }));
    return planAsData(node, request, { documents: data });
  }
  const text = documents.map(({ call, purpose, text }) => `# ${purpose}\n${call} ${text}\n`).join("");
  return { kind: "text", text, tool: node.family };
};
