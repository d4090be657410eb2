/** `kube-proxy render` in nftables mode: the table as nft prints it, as libnftables' JSON, or as netlink messages. */

import { libnftablesJson, tableJson } from "../../kernel/nftables/ruleset-table.ts";
import { tableText } from "../../kernel/nftables/ruleset-text.ts";
import type { ModeRenderer } from "../rendering.ts";
import type { NftablesPlanData } from "./cluster-plan.ts";
import { messageDump, planNftables, tableOfService } from "./cluster-plan.ts";

export const renderNftables: ModeRenderer<NftablesPlanData> = async (node, { config, form, service }) => {
  const plan = await planNftables(node, config);
  if (form === "netlink") {
    if (service !== undefined) throw new Error("--output netlink is a whole sync: leave --service out");
    return { kind: "text", text: await messageDump(plan), tool: `table ${plan.table.family} ${plan.table.name}` };
  }
  const table = service === undefined ? plan.table : await tableOfService(plan.table, node, config, service);
  if (form === "json") return { kind: "items", items: tableJson(table), data: { table }, document: libnftablesJson };
  return { kind: "text", text: tableText(table), tool: undefined };
};
