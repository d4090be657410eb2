/** The relay of node ports on loopback addresses, as `trace` walks it: an agent does not load this. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { type PlannedRelay, relayChain } from "../../contract/relay-chain.ts";
import { joinHostPort } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import { localhostServiceOf } from "./localhost-node-ports.ts";
import { LOCALHOST, wantedOf } from "./localhost-relay.ts";

/** The relay's listeners on a node, for `trace`; empty if there is no relay. */
export function plannedLocalhostRelay(node: OfflineNode, config: KubeProxyConfig): Dump[] {
  const { family, state, name: nodeName, zone } = node;
  if (localhostServiceOf(config, node.nodePortAddresses)?.isRelayed !== true) return [];
  const relays = new Map<string, PlannedRelay>();
  for (const [key, port] of state.services) {
    const wanted = wantedOf(port, state.endpoints.get(key) ?? [], { nodeName, zone });
    if (wanted === undefined) continue;
    const place = joinHostPort(LOCALHOST[family], port.nodePort);
    relays.set(`${protocolName(port.protocol)} ${place}`, {
      port,
      looksAtClient: false,
      endpointsFor: () => wanted.endpoints,
    });
  }
  return [relayChain(relays, false)];
}
