/**
 * What the kernelspace mode would ask HNS for, without Windows: the documents, with names in place of the IDs that only HNS knows. An
 * overlay is assumed where a source VIP is configured, with every pod on it. Pure.
 */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import { type EndpointSettings, endpointText, loadBalancerText } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import { frontendKey, ownedFrontends } from "../../model/frontend.ts";
import { type IpAddress, parseIpAddress, unspecifiedAddress, zeroCidr } from "../../net/ip.ts";
import { type ModeRenderer, planAsData } from "../rendering.ts";
import { networkNameOf, planConfigOf, rootEndpointNameOf } from "./host-config.ts";
import { remoteMac } from "./ownership.ts";
import { type PlanConfig, type PlanFacts, type PlannedLoadBalancer, planServicePort } from "./plan-service-port.ts";
import { hostDump } from "./walk-host-plan.ts";
import { type KernelspaceWanted, newWanted, partsOf } from "./wanted.ts";

/** A document, and what it is for. */
interface PlannedDocument {
  readonly call: "HcnCreateEndpoint" | "HcnCreateLoadBalancer";
  readonly purpose: string;
  /** As it is sent. */
  readonly text: string;
}

/** The same for programs: the text of each document as data. */
export interface KernelspacePlanData {
  readonly documents: readonly (Omit<PlannedDocument, "text"> & { readonly settings: unknown })[];
}

/** With an HNS that has everything. */
export function planInput(
  config: KubeProxyConfig,
  node: OfflineNode,
): { readonly config: PlanConfig; readonly facts: PlanFacts } {
  const { family, zone } = node;
  const { sourceVip } = config.winkernel;
  const everywhere = { prefix: zeroCidr(family), providerAddress: unspecifiedAddress(family) };
  return {
    config: planConfigOf(config, node, { dsr: true, sessionAffinity: true }, parseIpAddress(sourceVip)),
    facts: { zone, isOverlay: sourceVip !== "", remoteSubnets: sourceVip === "" ? [] : [everywhere] },
  };
}

/** Frontends for which there is no load balancer, because no endpoint could be led to: `tcp 10.96.0.1:80`, and the service port. */
function unservedFrontends(node: OfflineNode, config: KubeProxyConfig): readonly (readonly [string, string])[] {
  const options = planInput(config, node);
  return [...node.state.services].flatMap(([key, port]) => {
    const plan = planServicePort(port, node.state.endpoints.get(key) ?? [], options.config, options.facts);
    const served = new Set(plan.loadBalancers.map((planned) => planned.key));
    const declared = ownedFrontends(port).map((one) => frontendKey(port.protocol, one));
    return [...new Set(declared)].filter((one) => !served.has(one)).map((one) => [one, port.name.text] as const);
  });
}

/** Everything, or the part of one Service (`namespace/name`), in a fixed order: endpoints before the load balancers that name them. */
function planKernelspace(node: OfflineNode, config: KubeProxyConfig, service?: string): PlannedDocument[] {
  const options = planInput(config, node);
  const wanted = newWanted();
  const own = new Set<string>();
  for (const [key, port] of node.state.services) {
    if (service === undefined || port.name.service === service) own.add(key);
    const plan = planServicePort(port, node.state.endpoints.get(key) ?? [], options.config, options.facts);
    wanted.put(key, partsOf(key, plan));
  }
  const { endpoints, loadBalancers } = wanted.of;
  const addresses = Array.from(endpoints.allEffective(), ({ value }) => value.address).sort();
  const shown = addresses.filter((address) => endpoints.ownersOf(address).some((owner) => own.has(owner)));
  const keys = [...loadBalancers.keys()].sort();
  return [
    ...shown.flatMap((address) => endpointDocument(address, wanted, node, config)),
    ...keys.flatMap((key): PlannedDocument[] => {
      const found = loadBalancers.effective(key);
      if (found === undefined || !own.has(found.owner)) return [];
      const name = node.state.services.get(found.owner)?.name.text ?? found.owner;
      return [loadBalancerDocument(name, found.value, config)];
    }),
  ];
}

function endpointDocument(
  address: IpAddress,
  wanted: KernelspaceWanted,
  { nodeIP }: OfflineNode,
  config: KubeProxyConfig,
): PlannedDocument[] {
  const reason = wanted.of.endpoints.get(address)?.reason;
  // Those of this node's pods are the CNI plugin's.
  if (reason === undefined || reason === "local") return [];
  const isOverlay = config.winkernel.sourceVip !== "";
  const settings: EndpointSettings = {
    network: placeholder(`ID of ${networkNameOf(config, {}) || "the network"}`),
    address,
    mac: reason === "vip" ? "<MAC of the node>" : remoteMac(address),
    isRemote: true,
    ...(isOverlay && { providerAddress: reason === "vip" ? nodeIP : (`<node of ${address}>` as IpAddress) }),
  };
  const purpose = reason === "vip" ? `cluster IP ${address}` : `pod ${address} of another node`;
  return [{ call: "HcnCreateEndpoint", purpose, text: endpointText(settings) }];
}

function loadBalancerDocument(name: string, planned: PlannedLoadBalancer, config: KubeProxyConfig): PlannedDocument {
  const { endpoints, kind, key } = planned;
  const ids =
    endpoints === "root"
      ? [placeholder(`ID of ${rootEndpointNameOf(config)}`)]
      : endpoints.map((address) => placeholder(`ID of ${address}`));
  return {
    call: "HcnCreateLoadBalancer",
    purpose: `${name} ${kind} ${key}`,
    text: loadBalancerText({ ...planned, endpoints: ids }),
  };
}

/** Stands where HNS's own ID does. */
const placeholder = (name: string): Guid => `<${name}>` as Guid;

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
