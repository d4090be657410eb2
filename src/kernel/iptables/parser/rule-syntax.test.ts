import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { ruleArbitrary } from "../../../../testkit/support/rule-arbitrary.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { quoteWord, RuleSyntaxError, splitWords } from "./rule-options.ts";
import { parseRuleText, printRule } from "./rule-syntax.ts";

const A: IpFamily = "IPv4";
const B: IpFamily = "IPv6";

/** Input, and the output of `iptables-save` 1.8.9 with both back ends. Empty output: the same as the input. */
const PRINTED: readonly (readonly [IpFamily, string, string])[] = [
  [A, "-s 0.0.0.0/0 -j RETURN", "-j RETURN"],
  [A, "-s 10.0.0.0/8 -d 10.0.0.1 -i eth0 -o eth+ -j RETURN", "-s 10.0.0.0/8 -d 10.0.0.1/32 -i eth0 -o eth+ -j RETURN"],
  [A, "-i + -j RETURN", "-j RETURN"],
  [A, "! -p tcp -j RETURN", ""],
  [A, "-p 6 -j RETURN", "-p tcp -j RETURN"],
  [A, "-p all -j RETURN", "-j RETURN"],
  [A, "-p 132 -m sctp --dport 5 -j RETURN", "-p sctp -m sctp --dport 5 -j RETURN"],
  [A, "-p tcp --sport 1:1024 ! --dport 5: -j RETURN", "-p tcp -m tcp --sport 1:1024 ! --dport 5:65535 -j RETURN"],
  [A, "-p tcp --dport 0:65535 -j RETURN", "-p tcp -m tcp -j RETURN"],
  [A, "-p tcp --dport :5 -j RETURN", "-p tcp -m tcp --dport 0:5 -j RETURN"],
  [A, '-m comment --comment "" -j RETURN', ""],
  [A, String.raw`-m comment --comment "a\"b\\c'd" -j RETURN`, String.raw`-m comment --comment "a\"b\\c\'d" -j RETURN`],
  [A, "-m comment --comment a.b@c:d -j RETURN", '-m comment --comment "a.b@c:d" -j RETURN'],
  [A, "-m comment --comment nojump", ""],
  [
    A,
    "-m conntrack --ctstate DNAT,SNAT,UNTRACKED,ESTABLISHED,RELATED,NEW,INVALID -j RETURN",
    "-m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT -j RETURN",
  ],
  [A, "-m conntrack --ctstate established -j RETURN", "-m conntrack --ctstate ESTABLISHED -j RETURN"],
  [
    A,
    "-m addrtype --dst-type LOCAL,UNICAST ! --src-type local -j RETURN",
    "-m addrtype ! --src-type LOCAL --dst-type UNICAST,LOCAL -j RETURN",
  ],
  [
    A,
    "-m addrtype --dst-type BLACKHOLE,MULTICAST,ANYCAST,BROADCAST -j RETURN",
    "-m addrtype --dst-type BROADCAST,ANYCAST,MULTICAST,BLACKHOLE -j RETURN",
  ],
  [A, "-m mark --mark 1 -j RETURN", "-m mark --mark 0x1 -j RETURN"],
  [A, "-m mark --mark 0x40/0x30 -j RETURN", ""],
  [A, "-m mark --mark 1 -m mark --mark 2 -j DROP", "-m mark --mark 0x1 -m mark --mark 0x2 -j DROP"],
  [A, "-j MARK --set-mark 1", "-j MARK --set-xmark 0x1/0xffffffff"],
  [A, "-j MARK --set-mark 0x40/0x30", "-j MARK --set-xmark 0x40/0x70"],
  [A, "-j MARK --set-xmark 0x40/0x30", ""],
  [A, "-j MARK --and-mark 0xff", "-j MARK --set-xmark 0x0/0xffffff00"],
  [A, "-j MARK --or-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x4000"],
  [A, "-j MARK --xor-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x0"],
  [
    A,
    "-m statistic --mode random --probability 0.3333333333 -j RETURN",
    "-m statistic --mode random --probability 0.33333333349 -j RETURN",
  ],
  [
    A,
    "-m statistic --mode random --probability 0.0000099999 -j RETURN",
    "-m statistic --mode random --probability 0.00001000008 -j RETURN",
  ],
  [
    A,
    "-m statistic --mode random ! --probability 0.1 -j RETURN",
    "-m statistic --mode random ! --probability 0.10000000009 -j RETURN",
  ],
  [
    A,
    "-m statistic --mode random --probability 1.0000000000 -j RETURN",
    "-m statistic --mode random --probability 1.00000000000 -j RETURN",
  ],
  [
    A,
    "-m recent --update --hitcount 3 --seconds 5 --name abc --rdest --mask 255.255.0.0 -j RETURN",
    "-m recent --update --seconds 5 --hitcount 3 --name abc --mask 255.255.0.0 --rdest -j RETURN",
  ],
  [A, "-m recent --set -j RETURN", "-m recent --set --name DEFAULT --mask 255.255.255.255 --rsource -j RETURN"],
  [
    B,
    "-m recent --set -j RETURN",
    "-m recent --set --name DEFAULT --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j RETURN",
  ],
  [A, "-m nfacct --nfacct-name good -j RETURN", "-m nfacct --nfacct-name  good -j RETURN"],
  [A, "-m state --state ESTABLISHED,new -j RETURN", "-m state --state NEW,ESTABLISHED -j RETURN"],
  [A, "-m state ! --state INVALID -j RETURN", ""],
  [A, "-m physdev ! --physdev-is-in -j RETURN", ""],
  [A, "-m physdev --physdev-is-in -j RETURN", ""],
  [A, "-j REDIRECT", ""],
  [A, "-p udp -j REDIRECT --random --to-ports 10-20", "-p udp -j REDIRECT --to-ports 10-20 --random"],
  [B, "-p tcp -j REDIRECT --to-ports 7-7", "-p tcp -j REDIRECT --to-ports 7"],
  [A, "-m set --match-set KUBE-X dst,dst,src -j RETURN", ""],
  [A, "-p tcp -m set ! --match-set KUBE-X dst -m physdev ! --physdev-is-in -j RETURN", ""],
  [A, "-m physdev --physdev-is-in -j RETURN", ""],
  [
    A,
    "-s 10.0.0.1 -m ipvs --vaddr 10.0.0.1 --vproto TCP --vport 80 -j DROP",
    "-s 10.0.0.1/32 -m ipvs --vproto 6 --vaddr 10.0.0.1 --vport 80 -j DROP",
  ],
  [B, "-m ipvs --vaddr fd00::1 --vproto 132 --vport 80", "-m ipvs --vproto 132 --vaddr fd00::1 --vport 80"],
  [A, "-p tcp -j DNAT --to-destination 10.0.0.1:80", ""],
  [B, "-p tcp -j DNAT --to-destination [fd00::1]:80", ""],
  [B, "-p tcp -j DNAT --to-destination fd00::1 --random --persistent", ""],
  [A, "-j MASQUERADE --random-fully --random", "-j MASQUERADE --random --random-fully"],
  [A, "-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"],
  [B, "-j REJECT", "-j REJECT --reject-with icmp6-port-unreachable"],
  [A, "-p tcp -j REJECT --reject-with tcp-reset", ""],
  [A, "-j DROP -d 10.0.0.1/8", "-d 10.0.0.0/8 -j DROP"],
  [B, "-d fd00::1/33 -g KUBE-X", "-d fd00::/33 -g KUBE-X"],
];

test("rules print as iptables-save prints them", () => {
  for (const [family, input, output] of PRINTED) {
    assert.equal(printRule(parseRuleText(input, family)), output === "" ? input : output, input);
  }
});

test("a probability that is an exact decimal tie rounds to even, as C does", () => {
  const text = "-m statistic --mode random --probability 0.000244140625 -j RETURN";
  assert.equal(printRule(parseRuleText(text, A)), "-m statistic --mode random --probability 0.00024414062 -j RETURN");
});

test("a comment keeps its first 255 bytes", () => {
  const rule = parseRuleText(`-m comment --comment ${"x".repeat(300)}`, A);
  assert.equal(printRule(rule), `-m comment --comment ${"x".repeat(255)}`);
});

test("what the tools refuse, or what is not understood, is refused with a code", () => {
  const cases: readonly (readonly [IpFamily, string, string])[] = [
    [A, "-m bogus", "unknown_match"],
    [A, "--bogus 1", "unknown_option"],
    [A, "-j MARK --bogus 1", "unknown_option"],
    [A, "--dport 80", "unknown_option"],
    [A, "-j ACCEPT --log-prefix x", "unknown_option"],
    [A, "-d", "missing_value"],
    [A, "-m comment --comment", "missing_value"],
    [A, "-j DROP extra", "bad_argument"],
    [A, "-j DROP -j ACCEPT", "bad_argument"],
    [A, "-d 10.0.0.1 -d 10.0.0.2", "bad_argument"],
    [A, "! -j DROP", "bad_argument"],
    [A, "-j DROP !", "bad_argument"],
    [A, "-m comment ! --comment x", "bad_argument"],
    [A, "-m recent --set ! --name x", "bad_argument"],
    [A, '-m comment --comment "a', "bad_quotes"],
    [A, "-m comment", "bad_value"],
    [A, "-m mark", "bad_value"],
    [A, "-m addrtype", "bad_value"],
    [A, "-m recent --name x", "bad_value"],
    [A, "-m recent --rcheck --reap", "bad_value"],
    [A, "-m recent --set --seconds 5", "bad_value"],
    [A, "-m conntrack --ctstate BAD", "bad_value"],
    [A, "-m statistic --mode random", "bad_value"],
    [A, "-m statistic --mode random --probability 1.5", "bad_value"],
    [A, "-m statistic --mode nth --every 2", "unknown_option"],
    [A, "-d 10.0.0.999", "bad_value"],
    [A, "-d 010.0.0.1", "bad_value"],
    [A, "-d 10.0.0.1/33", "bad_value"],
    [A, "-d fd00::1", "bad_value"],
    [B, "-d 10.0.0.1", "bad_value"],
    [A, "! -d 0.0.0.0/0", "bad_value"],
    [A, "-i abcdefghijklmnopq", "bad_value"],
    [A, "-p tcp --dport 70000", "bad_value"],
    [A, "-p tcp --dport 5:4", "bad_value"],
    [A, "-p udp -m tcp --dport 5", "bad_value"],
    [A, "! -p tcp -m tcp", "bad_value"],
    [A, "-j DNAT --to-destination 1.2.3.4:80", "bad_value"],
    [A, "-p tcp -j DNAT --to-destination 1.2.3.4:70000", "bad_value"],
    [A, "-p tcp -j DNAT --to-destination [fd00::1]:80", "bad_value"],
    [A, "-j DNAT", "bad_value"],
    [A, "-j REJECT --reject-with icmp6-port-unreachable", "bad_value"],
    [A, "-j REJECT --reject-with tcp-reset", "bad_value"],
    [A, "-j MARK", "bad_value"],
    [A, "-j MARK --or-mark 1/2", "bad_value"],
    [A, "-j MARK --or-mark 1 --xor-mark 2", "bad_value"],
    [A, `-j ${"A".repeat(29)}`, "bad_value"],
    [A, `-m nfacct --nfacct-name ${"a".repeat(32)}`, "bad_value"],
    [A, "-m set", "bad_value"],
    [A, "-m set --match-set KUBE-X", "missing_value"],
    [A, "-m set --match-set KUBE-X dst,up", "bad_value"],
    [A, `-m set --match-set ${"a".repeat(32)} dst`, "bad_value"],
    [A, "-m physdev", "bad_value"],
    [A, "-m ipvs", "bad_value"],
    [A, "-m ipvs --vaddr fd00::1", "bad_value"],
    [A, "-m ipvs --vproto no-such", "bad_value"],
  ];
  for (const [family, text, code] of cases) {
    assert.throws(
      () => parseRuleText(text, family),
      (error: unknown) => error instanceof RuleSyntaxError && error.code === code,
      `${text} should be refused as ${code}`,
    );
  }
});

test("any word survives quoting", () => {
  fc.assert(
    fc.property(fc.array(fc.string()), (words) => {
      assert.deepEqual(splitWords(words.map(quoteWord).join(" ")), words);
    }),
  );
});

test("what is printed reads back as the same rule", () => {
  fc.assert(
    fc.property(ruleArbitrary, (given) => {
      // Cloned to normalize prototypes: fast-check's records have none.
      assert.deepEqual(parseRuleText(printRule(given), A), structuredClone(given));
    }),
    { numRuns: 500 },
  );
});

test("any words either make a rule or are refused with a RuleSyntaxError", () => {
  const word = fc.oneof(
    fc.constantFrom("-s", "-m", "-j", "!", "tcp", "-p", "--dport", "comment", "--comment", "recent", "--set", "DNAT"),
    fc.string(),
  );
  fc.assert(
    fc.property(fc.array(word), (words) => {
      try {
        parseRuleText(words.join(" "), A);
      } catch (error) {
        assert.ok(error instanceof RuleSyntaxError);
      }
    }),
    { numRuns: 500 },
  );
});
