/** Finds the host's iptables tools for the modes that use them. */
import {
  createIptables,
  type ExecIptablesOptions,
  type FoundIptables,
  findIptables,
} from "../../kernel/iptables/exec-iptables.ts";
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { readRuleset } from "../../kernel/iptables/parser/ruleset.ts";
import { execProcess } from "../../kernel/process.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";

export const iptablesTools = (family: IpFamily, log: Logger): ExecIptablesOptions => ({
  family,
  exec: execProcess,
  log,
  // Netlink is loaded only on a node with the nft back end.
  nftReader: () => import("../../kernel/iptables/nft-chains.ts"),
});

/** The tools that {@link missingIptables} found, for the start that follows. */
const found = new Map<IpFamily, FoundIptables>();

/**
 * Undefined if the host can program the family; otherwise upstream's log message, and the problem with its remedy.
 *
 * @param reads as in {@link findIptables}. @param isLookedFor as in {@link ExecIptablesOptions}.
 */
export async function missingIptables(
  family: IpFamily,
  reads: "tools" | "tables",
  isLookedFor: ExecIptablesOptions["isLookedFor"] = () => true,
): Promise<{ readonly message: string; readonly error: string } | undefined> {
  const tools = await findIptables({ ...iptablesTools(family, silentLogger), isLookedFor }, reads);
  found.set(family, tools);
  const { problem } = tools;
  return problem === undefined ? undefined : { message: "No iptables support for family", error: problem };
}

/** Opens the tools of a family, reusing what {@link missingIptables} found before. */
export async function openIptables(family: IpFamily, log: Logger): Promise<Iptables> {
  const tools = found.get(family);
  if (tools?.saved !== undefined) {
    // Later clean-ups look for chains alone; the rules are 10 MB after iptables mode with 10,000 Services.
    const text = (tools.saved.text.match(/^[*:C].*/gm) ?? []).join("\n");
    found.set(family, { ...tools, saved: { text, uses: undefined } });
  }
  return await createIptables(iptablesTools(family, log), tools);
}

/**
 * Cleans up both families in parallel with the host's tools. No tool starts for a family if the kernel shows that its
 * tables have none of the chains, and a family without tools on the host is skipped.
 *
 * @param isOwn whether the cleanup would remove a chain.
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
      const known = found.get(family);
      const tools =
        known !== undefined && (chains !== undefined || known.saved !== undefined)
          ? known
          : await findIptables(iptablesTools(family, silentLogger), chains === undefined ? "tables" : "tools");
      if (tools.problem !== undefined) return true;
      const saved = tools.saved === undefined ? [] : [...readRuleset(tools.saved.text)];
      const isThere = ([table, its]: (typeof saved)[number]) => [...its.keys()].some((chain) => isOwn(table, chain));
      if (chains === undefined && !saved.some(isThere)) return true;
      return await cleanUp(await createIptables(iptablesTools(family, log), tools));
    }),
  );
  return outcomes.every((succeeded) => succeeded);
}
