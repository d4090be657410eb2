/** `kube-proxy render` in nftables mode: the table as nft prints it, as libnftables' JSON, or as netlink messages. */
import { libnftablesJson, messageDump, planNftables } from "../../inspect/nftables-plan.ts";
import { tableText } from "../../kernel/nftables/ruleset-text.ts";
import type { ModeRenderer } from "../dataplane.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";

export const renderNftables: ModeRenderer = async (node, config, form) => {
  const masqueradeMark = masqueradeMarkOf(config.nftables);
  const plan = await planNftables(node, { masqueradeAll: config.masqueradeAll, masqueradeMark });
  switch (form) {
    case "text":
      return tableText(plan.table);
    case "json":
      return `${JSON.stringify(libnftablesJson(plan), undefined, 2)}\n`;
    default:
      return await messageDump(plan);
  }
};
