/** What every {@link Iptables} does with single chains and rules, and what it reports about them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { nat, rulesOf, SUBJECTS } from "./testing/iptables-subjects.ts";

for (const subject of SUBJECTS) {
  describe(`iptables: ${subject.name}`, { skip: subject.skip }, () => {
    test("chains are made once, found, and deleted", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      assert.equal(await iptables.chainPresence("mangle", "KUBE-A"), "absent");
      await iptables.ensureChain("mangle", "KUBE-A");
      await iptables.ensureChain("mangle", "KUBE-A");
      assert.equal(await iptables.chainPresence("mangle", "KUBE-A"), "present");
      assert.equal(await iptables.chainPresence("nat", "KUBE-A"), "absent");
      await iptables.deleteChain("mangle", "KUBE-A");
      assert.equal(await iptables.chainPresence("mangle", "KUBE-A"), "absent");
    });

    test("a chain that is missing, in use or not empty is not deleted", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await assert.rejects(iptables.deleteChain("nat", "KUBE-A"), { name: "IptablesError", code: "not_found" });
      await iptables.ensureChain("nat", "KUBE-A");
      await iptables.ensureRule("nat", "OUTPUT", ["-j", "KUBE-A"]);
      await assert.rejects(iptables.deleteChain("nat", "KUBE-A"), { name: "IptablesError", code: "failed" });
      await iptables.deleteRule("nat", "OUTPUT", ["-j", "KUBE-A"]);
      await iptables.ensureRule("nat", "KUBE-A", ["-j", "RETURN"]);
      await assert.rejects(iptables.deleteChain("nat", "KUBE-A"), { name: "IptablesError", code: "failed" });
      await iptables.deleteRule("nat", "KUBE-A", ["-j", "RETURN"]);
      await iptables.deleteChain("nat", "KUBE-A");
    });

    test("a rule is put at the head of the chain once, found, and deleted", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      const first = ["-m", "comment", "--comment", "the first rule", "-j", "RETURN"];
      const second = ["-p", "tcp", "--dport", "80", "-j", "RETURN"];
      await iptables.ensureRule("nat", "OUTPUT", first);
      await iptables.ensureRule("nat", "OUTPUT", second);
      await iptables.ensureRule("nat", "OUTPUT", first);
      const expected = ["-p tcp -m tcp --dport 80 -j RETURN", '-m comment --comment "the first rule" -j RETURN'];
      assert.deepEqual(await rulesOf(iptables, "OUTPUT"), expected);
      assert.equal(await iptables.rulePresence("nat", "OUTPUT", first), "present");
      await iptables.deleteRule("nat", "OUTPUT", first);
      await iptables.deleteRule("nat", "OUTPUT", first);
      assert.equal(await iptables.rulePresence("nat", "OUTPUT", first), "absent");
      assert.deepEqual(await rulesOf(iptables, "OUTPUT"), expected.slice(0, 1));
    });

    test("a rule is put at the end of the chain once when that is asked for", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await iptables.ensureRule("nat", "OUTPUT", ["-s", "10.0.0.1", "-j", "RETURN"]);
      await iptables.ensureRule("nat", "OUTPUT", ["-s", "10.0.0.2", "-j", "RETURN"], "end");
      await iptables.ensureRule("nat", "OUTPUT", ["-s", "10.0.0.1", "-j", "RETURN"], "end");
      assert.deepEqual(await rulesOf(iptables, "OUTPUT"), ["-s 10.0.0.1/32 -j RETURN", "-s 10.0.0.2/32 -j RETURN"]);
    });

    test("rules in or to a missing chain are absent, can be deleted and cannot be made", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await iptables.deleteRule("nat", "KUBE-GONE", ["-j", "RETURN"]);
      await iptables.deleteRule("nat", "OUTPUT", ["-j", "KUBE-GONE"]);
      assert.equal(await iptables.rulePresence("nat", "KUBE-GONE", ["-j", "RETURN"]), "absent");
      assert.equal(await iptables.rulePresence("nat", "OUTPUT", ["-j", "KUBE-GONE"]), "absent");
      const notFound = { name: "IptablesError", code: "not_found" };
      await assert.rejects(iptables.ensureRule("nat", "KUBE-GONE", ["-j", "RETURN"]), notFound);
      await assert.rejects(iptables.ensureRule("nat", "OUTPUT", ["-j", "KUBE-GONE"]), notFound);
    });

    test("says how much each chain is used, how many rules it has, and that something has changed", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      const rules = ["-A OUTPUT -j KUBE-A", '-A KUBE-A -d 10.0.0.1/32 -m comment --comment "a -j KUBE-B" -g KUBE-B'];
      await iptables.restore(
        nat(":KUBE-A - [0:0]", ":KUBE-B - [0:0]", ":KUBE-C - [0:0]", ...rules, "-A KUBE-A -j RETURN"),
      );
      const before = await iptables.generation();
      // Here the host's tools run in another namespace; `nft-chains.test.ts` reads a real kernel.
      assert.equal(typeof before, subject.name === "in memory, as nft" ? "number" : "undefined");
      assert.equal(await iptables.generation(), before);
      const uses = await iptables.chainUses("nat");
      assert.deepEqual(
        ["OUTPUT", "KUBE-A", "KUBE-B", "KUBE-C", "KUBE-D"].map((chain) => uses.get(chain)),
        [1, 3, 1, 0, undefined],
      );
      const counts = ["OUTPUT", "KUBE-A", "KUBE-B", "KUBE-D"].map((chain) => iptables.ruleCount("nat", chain));
      assert.deepEqual(await Promise.all(counts), [1, 2, 0, 0]);
      await iptables.restore(nat("-F KUBE-A"));
      assert.equal((await iptables.chainUses("nat")).get("KUBE-A"), 1);
      assert.equal(await iptables.ruleCount("nat", "KUBE-A"), 0);
      if (before !== undefined) assert.notEqual(await iptables.generation(), before);
    });

    test("what another program flushed is gone", async (t) => {
      const { iptables, flushNat } = await subject.create(t, "IPv4");
      await iptables.restore(nat(":KUBE-A - [0:0]", "-A OUTPUT -j KUBE-A"));
      await flushNat(false);
      assert.equal(await iptables.chainPresence("nat", "KUBE-A"), "present");
      assert.equal(await iptables.rulePresence("nat", "OUTPUT", ["-j", "KUBE-A"]), "absent");
      await flushNat(true);
      assert.equal(await iptables.chainPresence("nat", "KUBE-A"), "absent");
    });
  });
}
