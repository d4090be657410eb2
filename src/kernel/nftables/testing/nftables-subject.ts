/** Implementations of {@link Nftables} under test: the kernel's (in the test's own namespace) and the one in memory. */
import type { TestContext } from "node:test";
import type { Nftables } from "../nftables.ts";
import type { ForeignCommand } from "./foreign-hand.ts";

/** A fresh kernel without the table; family `ip`. */
export interface NftablesRig {
  readonly nft: Nftables;
  /** Carries out another program's change to the same table. */
  readonly foreign: (command: ForeignCommand) => Promise<void>;
}

export interface NftablesSubject {
  readonly name: string;
  readonly open: (t: TestContext) => Promise<NftablesRig>;
  /** Why it cannot be tested here; `false` if it can. */
  readonly skip: string | false;
}
