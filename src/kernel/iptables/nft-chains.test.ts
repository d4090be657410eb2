import assert from "node:assert/strict";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { silentLogger } from "../../logging/logger.ts";
import { execProcess } from "../process.ts";
import { createIptables, findIptables } from "./exec-iptables.ts";
import { countNftRules, hasNat, isNftTool, nftChainUses, nftGeneration } from "./nft-chains.ts";
import { readTable } from "./parser/ruleset.ts";
import { binariesOf } from "./testing/binaries.ts";

inNetns(import.meta.url, { name: "nftchains" }, () => {
  for (const family of ["IPv4", "IPv6"] as const) {
    const { rule, save } = binariesOf(family, "nft");

    test(`${family}: a table that was never used has no chains`, async () => {
      assert.deepEqual([...(await nftChainUses(family, "mangle")).keys()], []);
    });

    test(`${family}: whether the kernel translates addresses is asked without a trace, and a tool is known by its file`, async () => {
      const generation = await nftGeneration();
      assert.equal(await hasNat(family), true);
      assert.deepEqual([...(await nftChainUses(family, "nat")).keys()], []);
      assert.equal(await nftGeneration(), generation);
      assert.deepEqual(await Promise.all([save, binariesOf(family, "legacy").save, "no-such-tool"].map(isNftTool)), [
        true,
        false,
        false,
      ]);
    });

    test(`${family}: the chains are those that the save tool prints`, async () => {
      for (const name of ["KUBE-B", "KUBE-A"]) await execProcess(rule, ["-t", "nat", "-N", name]);
      await execProcess(rule, ["-t", "nat", "-A", "POSTROUTING", "-j", "KUBE-A"]);
      const { stdout } = await execProcess(save, ["-t", "nat"]);
      const chains = [...(await nftChainUses(family, "nat")).keys()];
      assert.ok(chains.includes("KUBE-A") && chains.includes("POSTROUTING"));
      assert.equal((await nftChainUses(family, "nat")).get("KUBE-A"), 1);
      assert.equal(await countNftRules(family, "nat", "POSTROUTING"), 1);
      assert.equal(await countNftRules(family, "nat", "KUBE-C"), 0);
      const generation = await nftGeneration();
      assert.equal(await nftGeneration(), generation);
      await execProcess(rule, ["-t", "nat", "-F", "POSTROUTING"]);
      assert.notEqual(await nftGeneration(), generation);
      assert.equal((await nftChainUses(family, "nat")).get("KUBE-A"), 0);
      // The tool also prints built-in chains that do not exist yet.
      assert.deepEqual(
        chains.filter((name) => !readTable(stdout, "nat").has(name)),
        [],
      );
    });

    test(`${family}: what was read of the tables counts until another program adds a rule`, async () => {
      let runs = 0;
      const exec: typeof execProcess = (...call) => {
        runs += 1;
        return execProcess(...call);
      };
      const options = { family, exec, log: silentLogger, binaries: binariesOf(family, "nft") };
      const withReader = { ...options, nftReader: () => import("./nft-chains.ts") };
      const found = await findIptables(withReader, "tables");
      assert.equal(found.problem, undefined);
      assert.equal(await (await createIptables(withReader, found)).save(), found.saved?.text);
      assert.equal(runs, 1);
      await execProcess(rule, ["-t", "nat", "-A", "KUBE-A", "-j", "RETURN"]);
      assert.match(await (await createIptables(withReader, found)).save(), /^-A KUBE-A -j RETURN$/m);
      assert.equal(runs, 2);
    });

    test(`${family}: a table in which nft has a rule of its own cannot be read, and works`, async () => {
      const options = { family, exec: execProcess, log: silentLogger, binaries: binariesOf(family, "nft") };
      const inFamily = family === "IPv4" ? "ip" : "ip6";
      await execProcess(rule, ["-t", "nat", "-N", "THEIRS"]);
      const theirs = ["add", "rule", inFamily, "nat", "THEIRS", "numgen random mod 2 vmap { 0 : accept, 1 : drop }"];
      assert.equal((await execProcess("nft", theirs)).status, 0);
      assert.equal((await findIptables(options, "tables")).problem, undefined);
      const iptables = await createIptables(options);
      await assert.rejects(iptables.save("nat"), { code: "unreadable" });
      for (let n = 0; n < 2; n += 1) {
        await iptables.ensureChain("nat", "KUBE-C");
        await iptables.ensureRule("nat", "PREROUTING", ["-j", "KUBE-C"]);
      }
      assert.equal((await nftChainUses(family, "nat")).get("PREROUTING"), 1);
    });
  }
});
