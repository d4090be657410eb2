/** The wanted kernel contents of a node, as an inventory for each tool that prints them. */

import type { DumpKind, Holder, Inventory } from "../../contract/inspect/dumps/inventory.ts";
import { readDump, readIptablesSave } from "../../contract/inspect/dumps/read-dump.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { KernelFeature } from "../../contract/rendering.ts";
import { modeNamed } from "../../modes/registry.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";
import { readNft } from "./nft-inventory.ts";

/** @param missing features that the node's kernel and tools lack. @returns empty for a mode that cannot be compared. */
export async function wantedInventories(
  { families, config }: ExplainedCluster,
  missing: ReadonlySet<KernelFeature> = new Set(),
): Promise<ReadonlyMap<DumpKind, Inventory>> {
  const comparison = families[0]?.inspection.comparison;
  const inventories = new Map<DumpKind, Inventory>();
  if (comparison === undefined) return inventories;
  const render = await modeNamed(config.mode).loadRenderer();
  for (const { kind, form } of comparison.dumps) {
    const parts: Inventory[] = [];
    for (const { node } of families) {
      const rendered = await render(node, { config, form, service: undefined, missing });
      if (rendered.kind === "text") parts.push(readRendered(rendered.text, kind, node, comparison.nftTable ?? ""));
    }
    inventories.set(kind, merged(kind, parts));
  }
  return inventories;
}

function readRendered(text: string, kind: DumpKind, { family }: OfflineNode, table: string): Inventory {
  if (text.trim() === "") return { kind, places: new Set(), holders: new Map() };
  // An empty cluster's rules do not tell their family, which is known here.
  if (kind === "nft") return readNft(text, table);
  return kind === "iptables-save" ? readIptablesSave(text, family) : readDump(text, family);
}

/** Joins inventories of the same kind. */
export function merged(kind: DumpKind, parts: readonly Inventory[]): Inventory {
  const holders = new Map<string, Holder>();
  for (const part of parts) for (const [key, holder] of part.holders) holders.set(key, holder);
  const { unsaid } = parts.find((part) => part.unsaid !== undefined) ?? {};
  const places = new Set(parts.flatMap((part) => [...part.places]));
  return { kind, places, holders, ...(unsaid !== undefined && { unsaid }) };
}
