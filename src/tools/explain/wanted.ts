/** The wanted kernel contents of a node, as an inventory for each tool that prints them. */

import type { DumpKind, Inventory } from "../../contract/inspect/dumps/inventory.ts";
import type { KernelFeature } from "../../contract/rendering.ts";
import { modeNamed } from "../../modes/registry.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";
import { inventoryOf, merged } from "./inventories.ts";
import { dumpsOf } from "./planned-rules.ts";

/** @param missing features that the node's kernel and tools lack. @returns empty for a mode that cannot be compared. */
export async function wantedInventories(
  { families, config }: ExplainedCluster,
  missing: ReadonlySet<KernelFeature> = new Set(),
): Promise<ReadonlyMap<DumpKind, Inventory>> {
  const { dumps = [], nftTable = "" } = families[0]?.inspection.comparison ?? {};
  const { loadRenderer, loadDumpReader } = modeNamed(config.mode);
  const inventories = new Map<DumpKind, Inventory>();
  for (const { kind, form } of dumps) {
    const render = await loadRenderer();
    const reader = await loadDumpReader?.();
    const parts: Inventory[] = [];
    for (const { node } of families) {
      const plan = await dumpsOf(
        [form],
        (own) => render(node, { config, form: own, service: undefined, missing }),
        reader && [reader],
      );
      // An empty cluster's rules do not tell their family, which is known here.
      parts.push(...plan.map((dump) => inventoryOf(dump, { family: node.family, table: nftTable })));
    }
    inventories.set(kind, merged(kind, parts));
  }
  return inventories;
}
