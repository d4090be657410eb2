/** What keeps the contract of {@link Nftables}: the kernel over netlink, in a namespace of the test's own, and the one in memory. */
import type { TestContext } from "node:test";
import type { Nftables } from "../nftables.ts";
import type { ForeignCommand } from "./foreign-hand.ts";

/** A fresh kernel without the table, family `ip`. */
export interface NftablesRig {
  readonly nft: Nftables;
  /** Another program does this to the same table. */
  readonly foreign: (command: ForeignCommand) => Promise<void>;
}

export interface NftablesSubject {
  readonly name: string;
  readonly open: (t: TestContext) => Promise<NftablesRig>;
  /** Why it cannot be tested here, or `false`. */
  readonly skip: string | false;
}
