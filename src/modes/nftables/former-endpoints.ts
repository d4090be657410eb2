/** Where the table of an earlier process leads. */

import type { FormerEndpoint } from "../../contract/backend.ts";
import type { Nftables, NftTableContent } from "../../kernel/nftables/nftables.ts";
import { joinHostPort } from "../../net/ip.ts";
import { ownerIn } from "./names.ts";
import { chainDigest } from "./port-objects.ts";
import type { WantedTable } from "./reconcile.ts";

/**
 * The TCP endpoints to which a table of an earlier process leads: at least those of service ports that are to change. Sets that
 * were compared have only the differences from what is wanted.
 */
export async function formerEndpoints(
  { chains, sets }: NftTableContent,
  { ports }: WantedTable,
  nft: Pick<Nftables, "readTargets">,
): Promise<FormerEndpoint[]> {
  const found: FormerEndpoint[] = [];
  for (const { elements, others } of sets.values()) {
    for (const element of [...elements, ...(others?.values() ?? [])]) {
      const { target, comment, key = [] } = element ?? {};
      // A comment that was cut is no service port's name.
      if (target === undefined || comment === undefined || !key.includes("tcp")) continue;
      found.push({ owner: `${comment}/TCP`, endpoint: joinHostPort(target.ip, target.port) });
    }
  }
  const owners = new Map<string, string>();
  for (const [name, { ruleDigests }] of chains) {
    const owner = ownerIn(name);
    if (owner?.endsWith("/TCP") !== true) continue;
    if (ports.get(owner)?.chains.get(name) !== chainDigest(ruleDigests)) owners.set(name, owner);
  }
  for (const [chain, targets] of await nft.readTargets(owners.keys())) {
    for (const { ip, port } of targets)
      found.push({ owner: owners.get(chain) ?? "", endpoint: joinHostPort(ip, port) });
  }
  return found;
}
