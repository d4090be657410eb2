/** The host's iptables tools, as the modes that use them find them. */
import { type ExecIptablesOptions, iptablesProblem } from "../../kernel/iptables/exec-iptables.ts";
import { execProcess } from "../../kernel/process.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import type { IpFamily } from "../../net/ip.ts";

export const iptablesTools = (family: IpFamily, log: Logger): ExecIptablesOptions => ({
  family,
  exec: execProcess,
  log,
  // Netlink is loaded when a node turns out to have the nft back end.
  listNftChains: async (...args) => (await import("../../kernel/iptables/nft-chains.ts")).listNftChains(...args),
  nftReader: () => import("../../kernel/iptables/nft-chains.ts"),
});

/** Undefined when the host can program the family; otherwise upstream's log message, and what to do. */
export async function missingIptables(
  family: IpFamily,
): Promise<{ readonly message: string; readonly error: string } | undefined> {
  const error = await iptablesProblem(iptablesTools(family, silentLogger));
  return error === undefined ? undefined : { message: "No iptables support for family", error };
}
