/** Removes tables that a process has left, without reading them. */
import type { Logger } from "../../logging/logger.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "./netlink-nftables.ts";
import { NftError } from "./nftables.ts";

/** The table that reports endpoints that do not answer, in any mode. */
export const UNANSWERED_TABLE = "kube-proxy-unanswered";

/** Deletes the tables of this name of both families. Succeeds on a kernel without nf_tables. @returns false after a logged error */
export async function deleteTables(table: string, log: Logger): Promise<boolean> {
  let ruleset: NetlinkRuleset;
  try {
    ruleset = openNetlinkRuleset({ log });
  } catch {
    return true;
  }
  let succeeded = true;
  try {
    for (const family of ["ip", "ip6"] as const) {
      try {
        await ruleset.open({ family, table }).transact([{ kind: "delete-table" }]);
      } catch (error) {
        if (error instanceof NftError && error.code === "not_found") continue;
        log.error("Error cleaning up nftables rules", error, { family });
        succeeded = false;
      }
    }
  } finally {
    await ruleset.close();
  }
  return succeeded;
}
