/** What every {@link Iptables} does with payloads of `iptables-restore`: what they create, and which are rejected. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { CHAINS } from "../../modes/shared/iptables-rules/chain-names.ts";
import { JUMP_RULES } from "../../modes/shared/iptables-rules/top-level-rules.ts";
import { ruleArguments } from "./rule-text.ts";
import { nat, refusal, rulesOf, SUBJECTS, saved } from "./testing/iptables-subjects.ts";

function example(name: string): string {
  return readFileSync(new URL(`../../../test/conformance/examples/${name}`, import.meta.url), "utf8");
}

/** Rejected payloads, and the line that the tools of each back end name. */
const REFUSED: readonly (readonly [
  what: string,
  lines: readonly string[],
  nft: number | undefined,
  legacy: number | undefined,
])[] = [
  ["an unknown option", [":KUBE-A - [0:0]", "-A KUBE-A --bogus 1 -j RETURN"], 3, 3],
  ["an unknown match", [":KUBE-A - [0:0]", "-A KUBE-A -m bogus -j RETURN"], 3, 3],
  ["a malformed address", [":KUBE-A - [0:0]", "-A KUBE-A -d 10.0.0.999 -j RETURN"], 3, 3],
  ["an address of the other family", [":KUBE-A - [0:0]", "-A KUBE-A -d fd00::1 -j RETURN"], 3, 3],
  ["a port out of range", [":KUBE-A - [0:0]", "-A KUBE-A -p tcp --dport 70000 -j RETURN"], 3, 3],
  ["a port without a protocol", [":KUBE-A - [0:0]", "-A KUBE-A --dport 70 -j RETURN"], 3, 3],
  ["DNAT to a port without a protocol", [":KUBE-A - [0:0]", "-A KUBE-A -j DNAT --to-destination 1.2.3.4:5"], 3, 3],
  ["a rule for a missing chain", [":KUBE-A - [0:0]", "-A KUBE-GONE -j RETURN"], 3, 3],
  ["a jump to a missing chain", [":KUBE-A - [0:0]", "-A KUBE-A -j KUBE-GONE", "-A KUBE-A -j RETURN"], undefined, 3],
  ["a jump to a built-in chain", [":KUBE-A - [0:0]", "-A KUBE-A -j OUTPUT"], 3, 3],
  ["a chain name of 29 characters", [`:KUBE-${"A".repeat(24)} - [0:0]`], 2, 2],
  [
    "a counter that does not exist",
    [":KUBE-A - [0:0]", "-A KUBE-A -m nfacct --nfacct-name gone -j RETURN"],
    3,
    undefined,
  ],
  ["a set that does not exist", [":KUBE-A - [0:0]", "-A KUBE-A -m set --match-set gone dst,dst -j RETURN"], 3, 3],
  ["a set without directions", [":KUBE-A - [0:0]", "-A KUBE-A -m set --match-set gone -j RETURN"], 3, 3],
  [
    "deleting a chain that is referenced",
    [":KUBE-A - [0:0]", ":KUBE-B - [0:0]", "-A KUBE-A -j KUBE-B", "-X KUBE-B"],
    5,
    5,
  ],
  ["deleting a chain that has rules", [":KUBE-A - [0:0]", "-A KUBE-A -j RETURN", "-X KUBE-A"], 4, 4],
  ["deleting a missing chain", ["-X KUBE-GONE"], 2, 2],
  ["flushing a missing chain", ["-F KUBE-GONE"], 2, 2],
  ["deleting a missing rule", [":KUBE-A - [0:0]", "-D KUBE-A -j RETURN"], 3, 3],
  ["deleting a rule number that is not there", [":KUBE-A - [0:0]", "-D KUBE-A 1"], 3, 3],
  ["inserting beyond the end", [":KUBE-A - [0:0]", "-I KUBE-A 3 -j RETURN"], 3, 3],
  ["creating a chain twice", [":KUBE-A - [0:0]", "-N KUBE-A"], 3, 3],
  ["a line that is no command", [":KUBE-A - [0:0]", "nonsense"], 3, 3],
  ["REJECT in nat", [":KUBE-A - [0:0]", "-A KUBE-A -j REJECT"], 3, undefined],
  ["DROP in nat", [":KUBE-A - [0:0]", "-A KUBE-A -j DROP"], 3, 3],
];

for (const subject of SUBJECTS) {
  describe(`iptables payloads: ${subject.name}`, { skip: subject.skip }, () => {
    test("the reference's IPv4 payload reads back as the reference's state (iptables-examples.md §16)", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      for (const { table, rule, target } of JUMP_RULES) {
        await iptables.ensureChain(table, target);
        await iptables.ensureRule(table, rule.chain, ruleArguments(rule));
      }
      for (const table of ["mangle", "nat", "filter"] as const) await iptables.ensureChain(table, CHAINS.canary);
      await iptables.restore([example("ipv4-payload.txt")]);
      assert.equal((await saved(iptables, "filter")) + (await saved(iptables, "nat")), example("ipv4-saved.txt"));
      await iptables.restore(example("ipv4-payload.txt").split(/(?<=\n)/));
      assert.equal((await saved(iptables, "filter")) + (await saved(iptables, "nat")), example("ipv4-saved.txt"));
      for (const { table, rule } of JUMP_RULES) {
        assert.equal(await iptables.rulePresence(table, rule.chain, ruleArguments(rule)), "present");
      }
    });

    test("a full and a partial IPv6 payload read back as the reference's state (iptables-examples.md §17)", async (t) => {
      const { iptables } = await subject.create(t, "IPv6");
      await iptables.restore([example("ipv6-payload.txt")]);
      await iptables.restore([example("ipv6-partial-payload.txt")]);
      const rules = (await saved(iptables, "nat")).match(/^-A KUBE-.*\n/gm)?.join("");
      assert.equal(rules, example("ipv6-saved-after-removal.txt"));
      assert.equal(await iptables.chainPresence("nat", "KUBE-SEP-LG3QL3GTXSAHS5OL"), "absent");
    });

    test("rules are deleted by their payload form, and by their saved form unless they have a default recent mask", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      const payload = example("ipv4-payload.txt");
      const rulesIn = (text: string): string[] => text.match(/(?<=^-A ).*(?=\n)/gm) ?? [];
      await iptables.restore([payload]);
      const before = await saved(iptables, "nat");
      const natPart = payload.slice(payload.indexOf("*nat"));
      await iptables.restore(nat(...rulesIn(natPart).map((rule) => `-D ${rule}`)));
      assert.deepEqual(rulesIn(await saved(iptables, "nat")), []);
      await iptables.restore([payload]);
      assert.equal(await saved(iptables, "nat"), before);
      const recent = rulesIn(before).filter((rule) => rule.includes("-m recent"));
      const others = rulesIn(before).filter((rule) => !recent.includes(rule));
      await iptables.restore(nat(...others.map((rule) => `-D ${rule}`)));
      assert.deepEqual(rulesIn(await saved(iptables, "nat")), recent);
      for (const rule of recent) await refusal(iptables.restore(nat(`-D ${rule}`)));
      const wholeMask = (rule: string): string => rule.replace(" --mask 255.255.255.255", "");
      await iptables.restore(nat(...recent.map((rule) => `-D ${wholeMask(rule)}`)));
      assert.deepEqual(rulesIn(await saved(iptables, "nat")), []);
    });

    test("an IPv6 rule with a default recent mask is deleted by its saved form", async (t) => {
      const { iptables } = await subject.create(t, "IPv6");
      await iptables.restore(nat(":KUBE-A - [0:0]", "-A KUBE-A -m recent --name a --set"));
      const [rule = ""] = await rulesOf(iptables, "KUBE-A");
      assert.match(rule, / --mask ffff:/);
      await iptables.restore(nat(`-D KUBE-A ${rule}`));
      assert.deepEqual(await rulesOf(iptables, "KUBE-A"), []);
    });

    test("a payload appends, inserts at the head or a position, and deletes by rule or number", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await iptables.restore(
        nat(":KUBE-A - [0:0]", "-A KUBE-A -s 10.0.0.1", "-A KUBE-A -s 10.0.0.2", "-I KUBE-A -s 10.0.0.3"),
      );
      assert.deepEqual(await rulesOf(iptables, "KUBE-A"), ["-s 10.0.0.3/32", "-s 10.0.0.1/32", "-s 10.0.0.2/32"]);
      await iptables.restore(
        nat("-I KUBE-A 2 -s 10.0.0.4", "-D KUBE-A -s 10.0.0.1", "-D KUBE-A 1", "-I KUBE-A 3 -s 10.0.0.5"),
      );
      assert.deepEqual(await rulesOf(iptables, "KUBE-A"), ["-s 10.0.0.4/32", "-s 10.0.0.2/32", "-s 10.0.0.5/32"]);
    });

    test("a chain line empties a chain of ours and leaves built-in and unmentioned ones alone", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await iptables.restore(
        nat(
          ":KUBE-A - [0:0]",
          ":KUBE-B - [0:0]",
          "-A KUBE-A -j KUBE-B",
          "-A KUBE-B -s 10.0.0.1",
          "-A OUTPUT -j KUBE-A",
        ),
      );
      await iptables.restore(nat(":KUBE-A - [0:0]", ":OUTPUT ACCEPT [0:0]"));
      assert.deepEqual(await rulesOf(iptables, "KUBE-A"), []);
      assert.deepEqual(await rulesOf(iptables, "KUBE-B"), ["-s 10.0.0.1/32"]);
      assert.deepEqual(await rulesOf(iptables, "OUTPUT"), ["-j KUBE-A"]);
      await iptables.restore(nat(":KUBE-A - [0:0]", ":KUBE-B - [0:0]", "-X KUBE-B"));
      assert.equal(await iptables.chainPresence("nat", "KUBE-B"), "absent");
    });

    test("a refused table is left as it was, and the error has the line that the tool names", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await iptables.restore(nat(":KUBE-KEEP - [0:0]", "-A KUBE-KEEP -s 10.0.0.1 -j RETURN"));
      const before = await saved(iptables, "nat");
      for (const [what, lines, nft, legacy] of REFUSED) {
        const error = await refusal(iptables.restore(nat(...lines)));
        assert.equal(error.code, "failed", `${what}: ${error.message}`);
        assert.equal(error.line, subject.backEnd === "nft" ? nft : legacy, `${what}: ${error.message}`);
        assert.notEqual(error.output, "");
        assert.equal(await saved(iptables, "nat"), before, what);
      }
    });

    test("loops and targets in the wrong place are refused once they can be reached", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await iptables.restore(
        nat(":KUBE-A - [0:0]", ":KUBE-B - [0:0]", ":KUBE-C - [0:0]", "-A KUBE-A -j KUBE-B", "-A KUBE-C -j MASQUERADE"),
      );
      const before = await saved(iptables, "nat");
      await refusal(iptables.restore(nat("-A KUBE-B -j KUBE-A", "-A OUTPUT -j KUBE-A")));
      await refusal(iptables.restore(nat("-A PREROUTING -j KUBE-C")));
      assert.equal(await saved(iptables, "nat"), before);
      await iptables.restore(nat("-A POSTROUTING -j KUBE-C"));
    });

    test("a payload without its COMMIT changes nothing", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      await refusal(iptables.restore(["*nat\n:KUBE-A - [0:0]\n"]));
      assert.equal(await iptables.chainPresence("nat", "KUBE-A"), "absent");
    });

    test("each table is a transaction of its own; one table can be picked", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      const filter = "*filter\n:KUBE-A - [0:0]\nCOMMIT\n";
      const error = await refusal(iptables.restore([filter, ...nat(":KUBE-A - [0:0]", "-A KUBE-A -d nonsense")]));
      assert.equal(error.line, 6);
      assert.equal(await iptables.chainPresence("filter", "KUBE-A"), "present");
      assert.equal(await iptables.chainPresence("nat", "KUBE-A"), "absent");
      await iptables.restore([...nat(":KUBE-B - [0:0]"), filter.replace("KUBE-A", "KUBE-B")], { table: "nat" });
      assert.equal(await iptables.chainPresence("nat", "KUBE-B"), "present");
      assert.equal(await iptables.chainPresence("filter", "KUBE-B"), "absent");
    });

    test("rules may name a counter that exists", { skip: subject.skipWithout("nfacct") }, async (t) => {
      const { iptables, addCounter } = await subject.create(t, "IPv4");
      await addCounter("localhost_nps_accepted_pkts");
      const rule = "-m nfacct --nfacct-name localhost_nps_accepted_pkts -j RETURN";
      await iptables.restore(nat(":KUBE-A - [0:0]", `-A KUBE-A ${rule}`));
      assert.deepEqual(
        (await rulesOf(iptables, "KUBE-A")).map((text) => text.replace(/ {2}/, " ")),
        [rule],
      );
    });

    test("rules may name a set that exists, and bridge ports", { skip: subject.skipWithout("ipset") }, async (t) => {
      const { iptables, addSet } = await subject.create(t, "IPv4");
      await addSet("KUBE-EXTERNAL-IP");
      const known = "-m set --match-set KUBE-EXTERNAL-IP dst,dst";
      const rules = [
        `-m comment --comment "a comment" ${known} -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT`,
        `-p sctp -m set ! --match-set KUBE-EXTERNAL-IP src -m physdev --physdev-is-in -j RETURN`,
      ];
      await iptables.restore(nat(":KUBE-A - [0:0]", ...rules.map((rule) => `-A KUBE-A ${rule}`)));
      assert.deepEqual(await rulesOf(iptables, "KUBE-A"), rules);
      assert.equal(await iptables.rulePresence("nat", "KUBE-A", known.split(" ")), "absent");
      const other = [
        "-p",
        "sctp",
        "-m",
        "set",
        "!",
        "--match-set",
        "KUBE-EXTERNAL-IP",
        "src",
        "-m",
        "physdev",
        "--physdev-is-in",
      ];
      assert.equal(await iptables.rulePresence("nat", "KUBE-A", [...other, "-j", "RETURN"]), "present");
    });

    test("comments keep 255 bytes and are quoted where needed", async (t) => {
      const { iptables } = await subject.create(t, "IPv4");
      const comments = ["x".repeat(300), "plain-word_1", "a/b:c", "two words", String.raw`a\"b\\c`];
      await iptables.restore(
        nat(":KUBE-A - [0:0]", ...comments.map((text) => `-A KUBE-A -m comment --comment "${text}"`)),
      );
      const printed = ["x".repeat(255), "plain-word_1", '"a/b:c"', '"two words"', String.raw`"a\"b\\c"`];
      assert.deepEqual(
        await rulesOf(iptables, "KUBE-A"),
        printed.map((text) => `-m comment --comment ${text}`),
      );
    });
  });
}
