import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { extensionText } from "../iptables/extension-data.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFPROTO_IPV4 } from "../netlink/nfnetlink.ts";
import { completed, completedListing } from "./completed-listing.ts";
import { isObject, listOf, textOf } from "./json.ts";
import { NftBatch } from "./wire/batch.ts";
import { openNftables } from "./wire/nftables-client.ts";
import { extension } from "./wire/objects.ts";

const sh = (command: string) => execFileSync("sh", ["-c", command], { encoding: "utf8" });
const listing = (said = "") => completedListing(listOf(JSON.parse(sh("nft -j list ruleset")).nftables), said);
const rulesIn = (objects: readonly unknown[]) =>
  objects.flatMap((one) => (isObject(one) && isObject(one.rule) ? [one.rule] : []));

/** What the kernel keeps of each is printed as iptables-save prints it. */
const BOTH: readonly (readonly [table: string, rule: string])[] = [
  ["filter", "INPUT -p tcp --tcp-option 5 --sport 1:9 -j DROP"],
  ["filter", "INPUT -p tcp --tcp-option 5 ! --dport 80 --syn -j DROP"],
  ["filter", "INPUT -p sctp -m sctp --dport 80:90 ! --sport 7 -j DROP"],
  ["filter", "INPUT -p tcp -m multiport --dports 80,90:95,443"],
  ["filter", "INPUT -p udp -m multiport ! --sports 53"],
  ["filter", "INPUT -p udp -m multiport --ports 1:2"],
  ["filter", "INPUT -m comment --comment word -m comment --comment \"two words, and 'quotes'\""],
  ["filter", "INPUT -m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT"],
  ["filter", "INPUT -m conntrack ! --ctstate NEW --ctdir ORIGINAL"],
  ["filter", "INPUT -p tcp -m conntrack --ctorigdstport 80:90 ! --ctorigsrcport 7 --ctdir REPLY"],
  ["filter", "INPUT -m state --state NEW,ESTABLISHED"],
  ["filter", "INPUT -m addrtype --src-type LOCAL ! --dst-type UNICAST,MULTICAST"],
  ["filter", "INPUT -m addrtype --dst-type LOCAL --limit-iface-in"],
  ["filter", "INPUT -m statistic --mode random --probability 0.33333333349"],
  ["filter", "INPUT -m statistic --mode random ! --probability 0.5"],
  ["filter", "INPUT -m statistic --mode nth --every 3 --packet 1"],
  ["filter", "INPUT -m recent --name CLIENTS --set"],
  ["filter", "INPUT -m recent --name CLIENTS --rcheck --seconds 10800 --reap --rdest"],
  ["filter", "INPUT -m recent --name CLIENTS ! --update --seconds 5 --hitcount 3"],
  ["filter", "INPUT -m recent --name CLIENTS --remove"],
  ["filter", "INPUT -m physdev --physdev-is-in"],
  ["filter", "FORWARD -m physdev ! --physdev-is-bridged ! --physdev-in eth0"],
  ["filter", "FORWARD -m physdev --physdev-in veth+ --physdev-is-bridged"],
  ["filter", "OUTPUT -m owner --uid-owner 1337"],
  ["filter", "OUTPUT -m owner ! --gid-owner 1-5 ! --socket-exists"],
  ["filter", "OUTPUT -m mark ! --mark 0x4000/0x4000 -m connmark --mark 0x1"],
  ["filter", "OUTPUT -m connmark ! --mark 0x10/0xff"],
  ["filter", 'INPUT -m bpf --bytecode "4,32 0 0 12,21 0 1 167772161,6 0 0 65535,6 0 0 0"'],
  ["filter", "INPUT -m set --match-set kpts-one src -j DROP"],
  ["filter", "INPUT -p tcp -m set ! --match-set kpts-two dst,src -j DROP"],
  ["filter", "INPUT -p tcp -j REJECT --reject-with tcp-reset"],
  ["mangle", "PREROUTING -j MARK --set-xmark 0x4000/0x4000"],
  ["mangle", "PREROUTING -j MARK --set-mark 0x7"],
  ["mangle", "PREROUTING -j CONNMARK --set-xmark 0x1/0xff"],
  ["mangle", "PREROUTING -j CONNMARK --save-mark --nfmask 0xf --ctmask 0xff"],
  ["mangle", "PREROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff"],
  ["raw", "PREROUTING -j CT --notrack"],
  ["raw", "PREROUTING -j CT --zone 7"],
  ["nat", "POSTROUTING -j MASQUERADE"],
  ["nat", "POSTROUTING -j MASQUERADE --random-fully"],
  ["nat", "POSTROUTING -p tcp -j MASQUERADE --to-ports 100-200 --random"],
  ["nat", "PREROUTING -p tcp -j REDIRECT --to-ports 8080"],
  ["nat", "PREROUTING -p udp -j REDIRECT --to-ports 80-90 --random"],
  ["nat", "PREROUTING -p udp -j DNAT --to-destination :53"],
];
const ONE: Readonly<Record<"ip" | "ip6", typeof BOTH>> = {
  ip: [
    ["filter", "INPUT -m addrtype ! --src-type XRESOLVE,BLACKHOLE"],
    ["filter", "INPUT -p icmp -m icmp --icmp-type 8"],
    ["filter", "INPUT -p icmp -m icmp ! --icmp-type 3/4"],
    ["filter", "INPUT -p icmp -m icmp --icmp-type any"],
    ["filter", "INPUT -m iprange --src-range 10.0.0.1-10.0.0.9 ! --dst-range 10.0.0.1-10.0.0.2"],
    ["filter", "INPUT -m conntrack --ctorigdst 10.0.0.1 ! --ctorigsrc 10.0.0.0/12"],
    ["filter", "INPUT -m recent --set --name NET --mask 255.255.255.0"],
    ...["net", "host", "proto", "port"].map(
      (what) => ["filter", `INPUT -j REJECT --reject-with icmp-${what}-unreachable`] as const,
    ),
    ...["net", "host", "admin"].map(
      (what) => ["filter", `INPUT -j REJECT --reject-with icmp-${what}-prohibited`] as const,
    ),
    ["mangle", "PREROUTING -j TTL --ttl-set 64"],
    ["mangle", "PREROUTING -j TTL --ttl-dec 1"],
    ["nat", "PREROUTING -p tcp -j DNAT --to-destination 10.0.0.1:80"],
    ["nat", "PREROUTING -p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.9:80-90 --random --persistent"],
    ["nat", "OUTPUT -j DNAT --to-destination 10.0.0.1"],
    ["nat", "POSTROUTING -j SNAT --to-source 10.0.0.1"],
    ["nat", "POSTROUTING -p tcp -j SNAT --to-source 10.0.0.1-10.0.0.2:7 --random-fully --persistent"],
  ],
  ip6: [
    ["filter", "INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128"],
    ["filter", "INPUT -m iprange ! --src-range fd00::1-fd00::9"],
    ["filter", "INPUT -m conntrack --ctorigdst fd00::1 --ctorigsrc fd00::/64"],
    ...["no-route", "adm-prohibited", "addr-unreachable", "port-unreachable", "policy-fail", "reject-route"].map(
      (what) => ["filter", `INPUT -j REJECT --reject-with icmp6-${what}`] as const,
    ),
    ["mangle", "PREROUTING -j HL --hl-inc 3"],
    ["nat", "PREROUTING -p tcp -j DNAT --to-destination [fd00::1]:80"],
    ["nat", "PREROUTING -p tcp -j DNAT --to-destination [fd00::1-fd00::9]:80-90 --random"],
    ["nat", "OUTPUT -j DNAT --to-destination fd00::1"],
    ["nat", "POSTROUTING -j SNAT --to-source fd00::1-fd00::2"],
    ["nat", "POSTROUTING -p tcp -j SNAT --to-source [fd00::1]:7 --random-fully"],
  ],
};

inNetns(import.meta.url, { name: "completed" }, () => {
  for (const family of ["ip", "ip6"] as const) {
    const tool = family === "ip" ? "iptables-nft" : "ip6tables-nft";
    test(`${family}: each match and target reads as iptables-save prints it`, async () => {
      const given = [...BOTH, ...ONE[family]];
      const tables = Object.entries(Object.groupBy(given, ([table]) => table));
      const text = tables.map(([name, rules]) =>
        [`*${name}`, ...(rules ?? []).map(([, rule]) => `-A ${rule}`), "COMMIT", ""].join("\n"),
      );
      const of = family === "ip" ? "inet" : "inet6";
      for (const set of ["kpts-one hash:ip", "kpts-two hash:ip,port"]) sh(`ipset create ${set} family ${of}`);
      execFileSync(`${tool}-restore`, { input: text.join("") });
      const { objects, unread } = await listing();
      assert.deepEqual(unread, []);
      // The kernel has one match for both.
      const saved = sh(`${tool}-save`)
        .replaceAll("-m state --state", "-m conntrack --ctstate")
        .split("\n")
        .filter((line) => line.startsWith("-A "));
      const rules = rulesIn(objects).filter((rule) => rule.family === family);
      assert.equal(rules.length, given.length);
      const kinds = new Set<string>();
      // Both list by table in the order in which they were made.
      for (const table of new Set(given.map(([name]) => name))) {
        const of = rules.filter((rule) => rule.table === table);
        for (const { expr, chain } of of) {
          for (const statement of listOf(expr)) {
            const xt = isObject(statement) && isObject(statement.xt) ? statement.xt : undefined;
            if (xt === undefined) continue;
            const options = textOf(xt.options);
            assert.ok(options, `${family} ${table} ${chain}: ${JSON.stringify(xt)} is not understood`);
            assert.ok(
              saved.some((line) => ` ${line} `.includes(` ${options} `)),
              `${options}\n${saved.join("\n")}`,
            );
            kinds.add(`${xt.type} ${xt.name}`);
          }
        }
      }
      for (const one of ["match conntrack", "match statistic", "target DNAT", "target MARK"])
        assert.ok(kinds.has(one), one);
      sh(`${tool} -F; for t in nat mangle raw; do ${tool} -t $t -F; done; ipset destroy`);
    });
  }

  test("an expression that this nft leaves out with status 0 is not understood", async () => {
    await using client = openNftables();
    const batch = new NftBatch(NFPROTO_IPV4);
    const [table, drop] = ["odd", { kind: "immediate", dreg: 0, data: { verdict: { code: 0 } } }] as const;
    batch.add("table", { name: table });
    batch.add("chain", { table, name: "c", type: "filter", hook: { hooknum: 1, priority: 0 } });
    const last = { kind: "unknown", name: "last", data: new Uint8Array() } as const;
    batch.add("rule", { table, chain: "c", expressions: [last, drop] });
    assert.deepEqual(await client.commit(batch), { committed: true });
    const { stdout, stderr } = spawnSync("nft", ["-j", "list", "ruleset"], { encoding: "utf8" });
    const { objects, unread } = await completedListing(listOf(JSON.parse(stdout).nftables), stderr);
    assert.deepEqual(unread, []);
    const statements = rulesIn(objects).find((rule) => rule.table === table)?.expr;
    const isKnown = stdout.includes('"last"');
    assert.deepEqual(statements, isKnown ? statements : [{ opaque: "the expression last" }, { drop: null }]);
    sh("nft delete table ip odd");
  });

  test("the kernel says which tables sleep, and flags as nft prints them do not count", async () => {
    sh("nft 'add table ip a { flags dormant; }; add table ip b'");
    const { objects } = await listing();
    const tables = objects.flatMap((one) => (isObject(one) && isObject(one.table) ? [one.table] : []));
    const flags = new Map(tables.map(({ name, flags: of }) => [name, of]));
    assert.deepEqual([flags.get("a"), flags.get("b")], [["dormant"], undefined]);
  });
});

const RULE = {
  rule: { family: "ip", table: "t", chain: "c", handle: 3, expr: [{ xt: { type: "match", name: "mark" } }] },
};
const mark = (revision: number, info: string) => {
  const out = new MessageBuffer();
  extension.write(out, { name: "mark", revision, data: Buffer.from(info, "hex") });
  return { name: "match", data: out.bytes };
};
const completedBy = (said: string, rules: ReadonlyMap<string, ReturnType<typeof mark>[]>) =>
  completed([RULE], said, { dormant: new Set(), rules });

test("what nft complains of, and rules that it leaves out, are named", () => {
  for (const harmless of ["# Warning: …\n", "warning: stmt ops map have no json callback\n"])
    assert.deepEqual(completedBy(harmless, new Map()), { objects: [RULE], unread: [] });
  // Its text is in the place of a value, and reads like one.
  const expression = "warning: expr ops exthdr have no json callback";
  assert.deepEqual(completedBy(expression, new Map()).unread, [`nft says: ${expression}`]);
  const said = "netlink: Error: unknown expression type 'inner'\nnetlink: Error: no such thing\n";
  const { unread } = completedBy(said, new Map([["ip t 4", []]]));
  assert.deepEqual(unread, [
    "nft says: netlink: Error: unknown expression type 'inner'",
    "nft says: netlink: Error: no such thing",
    "nft leaves out 1 of the kernel's rules",
  ]);
});

test("data of another revision, too short, or of more matches than nft lists is not understood", () => {
  const [data, key] = ["00400000ffffffff01", "ip t 3"];
  const optionsOf = (...of: ReturnType<typeof mark>[]) => {
    const [rule] = rulesIn(completedBy("", new Map([[key, of]])).objects);
    const [statement] = listOf(rule?.expr);
    return isObject(statement) && isObject(statement.xt) ? statement.xt.options : "none";
  };
  assert.equal(optionsOf(mark(1, data)), "-m mark ! --mark 0x4000");
  assert.equal(optionsOf(mark(7, data)), undefined);
  assert.equal(optionsOf(mark(1, "0040")), undefined);
  assert.equal(optionsOf(mark(1, data), mark(1, data)), undefined);
});

test("ports of udp, which newer iptables writes as nft does", () => {
  const text = (data: string) =>
    extensionText({ type: "match", name: "udp", revision: 0, data: Buffer.from(data, "hex") }, "IPv4");
  assert.equal(text("0000ffff3500350002"), "-m udp ! --dport 53");
  assert.equal(text("010002000000ffff00"), "-m udp --sport 1:2");
});
