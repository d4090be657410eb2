/** Which layout a node runs: the one that was asked for, if its kernel has all that this needs. */
import { probeFlatLayout } from "../../kernel/nftables/kernel-probe.ts";
import type { NetlinkRuleset } from "../../kernel/nftables/netlink-nftables.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import type { NftFamily } from "../../kernel/nftables/ruleset.ts";
import type { Logger } from "../../logging/logger.ts";
import type { LayoutName } from "./layout-name.ts";

interface ChooseLayoutOptions {
  readonly ruleset: Pick<NetlinkRuleset, "check">;
  readonly family: NftFamily;
  readonly log: Logger;
}

/** Resolves to `Compatible`, and logs which part is missing, where the kernel refuses the flat layout. */
export async function chooseLayout(
  wanted: LayoutName,
  { ruleset, family, log }: ChooseLayoutOptions,
): Promise<LayoutName> {
  if (wanted !== "Flat") return wanted;
  try {
    await probeFlatLayout(ruleset, family);
    return wanted;
  } catch (error) {
    if (!(error instanceof NftError)) throw error;
    log.error("The kernel lacks a part of the flat layout; using the compatible one", error, {
      family,
      cannot: `the flat layout of table ${family}`,
    });
    return "Compatible";
  }
}
