/** The host's iptables tools, as the modes that use them find them. */
import {
  createIptables,
  type ExecIptablesOptions,
  iptablesProblem,
  isIptablesPresent,
} from "../../kernel/iptables/exec-iptables.ts";
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { execProcess } from "../../kernel/process.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";

export const iptablesTools = (family: IpFamily, log: Logger): ExecIptablesOptions => ({
  family,
  exec: execProcess,
  log,
  // Netlink is loaded when a node turns out to have the nft back end.
  nftReader: () => import("../../kernel/iptables/nft-chains.ts"),
});

/** Undefined when the host can program the family; otherwise upstream's log message, and what to do. */
export async function missingIptables(
  family: IpFamily,
): Promise<{ readonly message: string; readonly error: string } | undefined> {
  const error = await iptablesProblem(iptablesTools(family, silentLogger));
  return error === undefined ? undefined : { message: "No iptables support for family", error };
}

/**
 * Cleans up both families side by side, with the host's tools. No tool is started for a family whose tables the kernel shows
 * to have none of the chains, and nothing is done for one that the host has no tools for.
 *
 * @param isOwn whether a chain is one of those that would be removed.
 * @returns whether everything worked.
 */
export async function cleanUpFamilies(
  isOwn: (table: string, chain: string) => boolean,
  cleanUp: (iptables: Iptables) => Promise<boolean>,
  log: Logger,
): Promise<boolean> {
  const { chainsAtHand } = await import("../../kernel/iptables/nft-chains.ts");
  const outcomes = await Promise.all(
    IP_FAMILIES.map(async (family) => {
      const chains = await chainsAtHand(family);
      if (chains !== undefined && !chains.some(({ table, chain }) => isOwn(table, chain))) return true;
      if (!(await isIptablesPresent(iptablesTools(family, silentLogger)))) return true;
      return await cleanUp(await createIptables(iptablesTools(family, log)));
    }),
  );
  return outcomes.every((succeeded) => succeeded);
}
