/**
 * The documents that the kernelspace mode would send to HNS, planned without Windows: with names in place of the IDs,
 * which only HNS knows. If a source VIP is configured, an overlay with all pods on it is assumed.
 */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { type ModeRenderer, planAsData } from "../../contract/rendering.ts";
import { frontendKey, ownedFrontends } from "../../model/frontend.ts";
import { type IpAddress, parseIpAddress, unspecifiedAddress, zeroCidr } from "../../net/ip.ts";
import { type EndpointSettings, endpointText, loadBalancerText } from "./hcn/documents.ts";
import type { Guid } from "./hcn/guid.ts";
import { networkNameOf, planConfigOf, rootEndpointNameOf } from "./host-config.ts";
import { remoteMac } from "./ownership.ts";
import { type PlanConfig, type PlanFacts, type PlannedLoadBalancer, planServicePort } from "./plan-service-port.ts";
import { hostDump } from "./walk-host-plan.ts";
import { type KernelspaceWanted, newWanted, partsOf } from "./wanted.ts";

/** A document and its purpose. */
interface PlannedDocument {
  readonly call: "HcnCreateEndpoint" | "HcnCreateLoadBalancer";
  readonly purpose: string;
  /** As sent. */
  readonly text: string;
}

/** The same as data for programs: each document is parsed. */
export interface KernelspacePlanData {
  readonly documents: readonly (Omit<PlannedDocument, "text"> & { readonly settings: unknown })[];
}

/** For an HNS with all features. */
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

interface KernelspacePlan {
  /** Endpoints before the load balancers that name them, each in a fixed order. */
  readonly documents: readonly PlannedDocument[];
  /** Frontends without a load balancer, because they have no usable endpoint: `tcp 10.96.0.1:80`, and the reason. */
  readonly unserved: ReadonlyMap<string, string>;
}

/** Plans everything, or only the documents of one Service (`namespace/name`). */
function planKernelspace(node: OfflineNode, config: KubeProxyConfig, service?: string): KernelspacePlan {
  const options = planInput(config, node);
  const wanted = newWanted();
  const own = new Set<string>();
  const unserved = new Map<string, string>();
  for (const [key, port] of node.state.services) {
    if (service === undefined || port.name.service === service) own.add(key);
    const plan = planServicePort(port, node.state.endpoints.get(key) ?? [], options.config, options.facts);
    wanted.put(key, partsOf(plan));
    for (const frontend of ownedFrontends(port)) {
      const place = frontendKey(port.protocol, frontend);
      if (plan.loadBalancers.some((planned) => planned.key === place)) continue;
      unserved.set(place, `${port.name.text} has no endpoint that HNS can send to`);
    }
  }
  const { endpoints, loadBalancers } = wanted.of;
  const addresses = Array.from(endpoints.entries(), ([, { value }]) => value.address).sort();
  const shown = addresses.filter((address) => endpoints.ownersOf(address).some((owner) => own.has(owner)));
  const keys = [...loadBalancers.keys()].sort();
  const documents = [
    ...shown.flatMap((address) => endpointDocument(address, wanted, node, config)),
    ...keys.flatMap((key): PlannedDocument[] => {
      const found = loadBalancers.effective(key);
      if (found === undefined || !own.has(found.owner)) return [];
      const name = node.state.services.get(found.owner)?.name.text ?? found.owner;
      return [loadBalancerDocument(name, found.value, config)];
    }),
  ];
  return { documents, unserved };
}

function endpointDocument(
  address: IpAddress,
  wanted: KernelspaceWanted,
  { nodeIP }: OfflineNode,
  config: KubeProxyConfig,
): PlannedDocument[] {
  const reason = wanted.of.endpoints.get(address)?.reason;
  // The CNI plugin creates those of this node's pods.
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

/** Stands for an ID of HNS. */
const placeholder = (name: string): Guid => `<${name}>` as Guid;

export const renderKernelspace: ModeRenderer<KernelspacePlanData> = async (node, request) => {
  const { documents, unserved } = planKernelspace(node, request.config, request.service);
  if (request.form === "json") {
    const data = documents.map(({ text, ...rest }) => ({ ...rest, settings: JSON.parse(text) }));
    return planAsData(node, request, { documents: data });
  }
  const text = documents.map(({ call, purpose, text }) => `# ${purpose}\n${call} ${text}\n`).join("");
  if (request.form === "load-balancers") return { kind: "dump", dump: hostDump(text, request.form, unserved) };
  return { kind: "text", text, tool: node.family };
};
