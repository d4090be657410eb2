/** The kernel's nf_tables keeps the contract, with the `nft` program as the other hand. */
import { execFileSync } from "node:child_process";
import { inNetns } from "../../../test/support/in-netns.ts";
import { openNetlinkRuleset } from "./netlink-nftables.ts";
import { foreignNftText } from "./testing/foreign-hand.ts";
import { nftablesContract } from "./testing/nftables-contract.ts";

const TABLE = "kube-proxy";

function nft(input: string): void {
  execFileSync("nft", ["-f", "-"], { input, stdio: ["pipe", "ignore", "pipe"] });
}

inNetns(import.meta.url, { name: "nftnetlink" }, () => {
  nftablesContract({
    name: "over netlink",
    skip: false,
    open: async (t) => {
      nft("flush ruleset\n");
      const ruleset = openNetlinkRuleset();
      t.after(() => ruleset.close());
      return {
        nft: ruleset.open({ family: "ip", table: TABLE }),
        foreign: async (command) => nft(foreignNftText("ip", TABLE, command)),
      };
    },
  });
});
