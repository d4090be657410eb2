/** The rules that a mode plans for a node, ready to be walked: for `trace`, and for a daemon's page. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { podNetworks, sendingTo } from "../../contract/inspect/client-place.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { Rendered } from "../../contract/rendering.ts";
import { messageOf } from "../../logging/message-of.ts";
import { addressesOf } from "../../model/frontend.ts";
import { modeNamed } from "../../modes/registry.ts";
import { cidrContains, type IpAddress } from "../../net/ip.ts";
import { deviceAddresses } from "../../trace/dump/device-addresses.ts";
import { type Dump, type DumpReader, recogniseDump } from "../../trace/dump/recognise.ts";
import { walkerOf } from "../../trace/dump/walk-dumps.ts";
import { type KnownServices, nodeFacts } from "../../trace/facts.ts";
import { COMES_BY_BRIDGE } from "../../trace/iptables/match.ts";
import { outcomesOf } from "../../trace/netfilter/tree.ts";
import { newPacket } from "../../trace/packet.ts";
import type { Walk } from "./encounters.ts";

/** The mode as configured has no rules, or none that can be walked; the message says which. */
export class NoRulesError extends Error {
  override readonly name = "NoRulesError";
}

/** Up to this many Services or service ports, everything is planned: a part would contain most of them anyway. */
export const FEW_SERVICES = 50;

/** @throws NoRulesError */
export async function plannedRules(node: OfflineNode, config: KubeProxyConfig) {
  const { traceForms = [], loadRenderer, loadTraceStages } = modeNamed(config.mode);
  if (traceForms.length === 0) throw new NoRulesError(`mode ${config.mode} has no rules that could be walked`);
  const renderer = await loadRenderer();
  const dumps = await dumpsOf(traceForms, (form) =>
    renderer(node, { config, form, service: undefined, missing: new Set() }).catch(refuse),
  );
  const stages = await loadTraceStages?.();
  dumps.push(...(stages?.(node, config) ?? []));
  return {
    /** In words. */
    name: `the plan of mode ${config.mode} for ${node.name}`,
    dumps,
    // Modes with virtual servers put their addresses on a device.
    addresses: [...node.hostAddresses, ...deviceAddresses(dumps)],
    services: servicesOf(node),
  };
}

/** The plan in each of these forms that has any rules. @param render plans in one form. @throws what `render` throws */
export async function dumpsOf(
  forms: readonly string[],
  render: (form: string) => Promise<Rendered>,
  readers: readonly DumpReader[] = [],
): Promise<Dump[]> {
  const dumps: Dump[] = [];
  for (const form of forms) {
    const rendered = await render(form);
    if (rendered.kind === "items") dumps.push({ kind: "nftables", objects: rendered.items });
    else if (rendered.kind === "dump") dumps.push(rendered.dump);
    else if (rendered.kind === "text" && rendered.text.trim() !== "")
      dumps.push(recogniseDump(rendered.text, form, readers));
  }
  return dumps;
}

function refuse(error: unknown): never {
  throw new NoRulesError(messageOf(error));
}

function servicesOf({ state }: OfflineNode): KnownServices {
  const addresses = new Map<IpAddress, string>();
  const remoteEndpoints = new Set<IpAddress>();
  for (const [key, port] of state.services) {
    for (const address of addressesOf(port)) {
      if (!addresses.has(address)) addresses.set(address, port.name.service);
    }
    for (const { ip, isLocal } of state.endpoints.get(key) ?? []) if (!isLocal) remoteEndpoints.add(ip);
  }
  return { addresses, remoteEndpoints };
}

/** Whether an address is that of a pod of this node. @param podCIDRs of the node. */
export function isPodOf(node: OfflineNode, podCIDRs: readonly string[], address: IpAddress): boolean {
  return podNetworks(node, podCIDRs).some((cidr) => cidrContains(cidr, address));
}

/**
 * Sends packets through the plan. Every client counts as new. No outcomes without rules.
 *
 * @param arePodsBridged whether pods come in by a port of a bridge. @default not known: both are walked
 */
export async function walkOf(node: OfflineNode, config: KubeProxyConfig, arePodsBridged?: boolean): Promise<Walk> {
  const rules = await plannedRules(node, config).catch((error: unknown) => {
    if (error instanceof NoRulesError) return undefined;
    throw error;
  });
  if (rules === undefined) return () => [];
  const { dumps, addresses, services } = rules;
  const facts = nodeFacts({ addresses, services });
  const walk = walkerOf(dumps, node.family, facts, { knowsClients: true, knowsDynamicSets: true });
  const isLocal = (address: IpAddress) => facts.addressType(address) === "local";
  return (question) => {
    const { inInterface, origin, destination, source } = question;
    const { address } = sendingTo(destination, { address: source, inInterface }, isLocal);
    const isPod = origin === "socket" && inInterface !== "";
    const isBridged = isPod ? arePodsBridged : false;
    const answers = new Map(isBridged === undefined ? [] : [[COMES_BY_BRIDGE, isBridged]]);
    return outcomesOf(walk(newPacket({ ...question, source: address }), { record: "ends", answers }));
  };
}
