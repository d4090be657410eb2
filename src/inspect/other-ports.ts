/** Service ports that a node has beside those that are looked at, as far as the places and the number of rules depend on them. */
import { servicePortKey } from "../model/service-port-name.ts";
import type { OfflineNode, OtherPort } from "./offline-node.ts";

/**
 * The node of a part of its cluster as one of the whole. Pure.
 *
 * @param others the Services that are left out, as `namespace/name`, each with one of the part that has as many rules and endpoints.
 */
export function amongOthers(node: OfflineNode, others: ReadonlyMap<string, string>): OfflineNode {
  if (others.size === 0) return node;
  const { services, endpoints, localReadyCounts } = node.state;
  const portsOf = Map.groupBy(services.values(), ({ name }) => name.service);
  let { endpointCount } = node.state;
  const found: OtherPort[] = [];
  for (const [service, like] of others) {
    const slash = service.indexOf("/");
    const [namespace, name] = [service.slice(0, slash), service.slice(slash + 1)];
    for (const { name: own, protocol } of portsOf.get(like) ?? []) {
      endpointCount += endpoints.get(own.key)?.length ?? 0;
      const key = servicePortKey(namespace, name, own.port, protocol);
      found.push({ key, text: own.port === "" ? service : `${service}:${own.port}`, like: own.key });
    }
  }
  return { ...node, state: { services, endpoints, endpointCount, localReadyCounts }, others: found };
}
