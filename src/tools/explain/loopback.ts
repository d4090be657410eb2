/** Node ports at loopback addresses: which are served and by what, and why the others are not. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { ModeInspection } from "../../contract/inspection.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { modeNamed } from "../../modes/registry.ts";
import { type IpAddress, isLoopback, joinHostPort } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import type { Walk } from "./encounters.ts";
import { walkOf } from "./planned-rules.ts";

interface LoopbackNode {
  readonly node: OfflineNode;
  readonly config: KubeProxyConfig;
  readonly inspection: ModeInspection;
}

/** A sentence about what this node meets at a node port of its loopback address. @param port has usable endpoints */
export function atLoopback({ node, config, inspection }: LoopbackNode, port: ServicePort, walk: Walk) {
  const { family } = node;
  const address = (family === "IPv4" ? "127.0.0.1" : "::1") as IpAddress; // canonical literals
  const ends = { source: address, sourcePort: undefined, destination: address, destinationPort: port.nodePort };
  const protocol = protocolName(port.protocol);
  const fates = Array.from(walk({ family, protocol, inInterface: "", origin: "socket", ...ends }), (outcome) => {
    const { fate, packet } = outcome;
    return fate.kind === "sent" || (fate.kind === "delivered" && packet.destination !== address) ? "led" : fate.kind;
  });
  const isLed = fates.includes("led");
  const { led, notLed } = inspection.words.loopback({ node, config, port, hasLocal: false });
  const met = isLed
    ? `is answered: ${led}`
    : `is ${fates.includes("refused") ? "refused" : "not served"} in ${config.mode} mode: ${notLed}`;
  return { address, isLed, words: `${joinHostPort(address, port.nodePort)} (${port.protocol}) ${met}.` };
}

/** The same sentence as a note on the trace of a packet to a node port at a loopback address; none for other packets. */
export async function loopbackNotes(
  node: OfflineNode,
  config: KubeProxyConfig,
  {
    address,
    port,
    protocol,
  }: { readonly address: IpAddress; readonly port: number | undefined; readonly protocol: string },
): Promise<string[]> {
  if (!isLoopback(address)) return [];
  const { services, endpoints } = node.state;
  const own = [...services.values()].find((one) => one.nodePort === port && protocolName(one.protocol) === protocol);
  const routing =
    own && routeServicePort(own, endpoints.get(own.name.key) ?? [], { nodeName: node.name, zone: node.zone });
  if (own === undefined || routing?.categories.hasAny !== true) return [];
  const inspection = await modeNamed(config.mode).loadInspection();
  return [atLoopback({ node, config, inspection }, own, await walkOf(node, config)).words];
}
