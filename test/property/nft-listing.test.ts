/**
 * Random tables, loaded into a kernel: what `nft list ruleset` prints of them is read as what `nft -j list ruleset` prints.
 * `KPTS_PROPERTY_LISTING_RUNS` sets how many rulesets are tried.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isObject, named } from "../../src/kernel/nftables/json.ts";
import { readListing } from "../../src/kernel/nftables/listing/listing.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { netnsFor, netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";

const RUNS = historyRuns("KPTS_PROPERTY_LISTING_RUNS", 10);

/** Conditions of each kind that nft prints; some need a kernel that has the feature. */
const CONDITIONS = `
ct state established,related; ct state { new, established }; ct state != new; ct status dnat,snat; ct direction reply
ct original ip saddr 1.2.3.4; ct reply ip daddr 1.2.3.4; ct mark 0x10; ct mark and 0xf0 == 0x10; ct helper "ftp"
ct count over 20; ct bytes > 100; ct original bytes > 100; ct label 3; ct l3proto ipv4; ct protocol tcp
tcp flags syn,ack; tcp flags { syn, ack }; tcp flags & (syn|ack) == syn; tcp flags != syn; tcp dport 22-25
tcp dport { 22, 80-90, 443 }; udp dport != 53; tcp sport > 1024; th dport 53; ip protocol udp; ip6 nexthdr icmpv6
ip dscp cs1; ip ecn ce; ip ttl < 5; ip frag-off & 0x1fff != 0; ip saddr & 255.255.0.255 == 10.0.0.1
ip saddr . tcp dport { 1.1.1.1 . 80, 10.0.0.0/8 . 90-100 }; ip saddr @s; ip daddr != @s; ip saddr != { 1.1.1.1, 2.2.2.0/24 }
ip6 saddr fd00::/64; ip6 saddr fd00::1-fd00::9; icmp type echo-request; icmpv6 type { nd-neighbor-solicit, nd-router-advert }
icmp code port-unreachable; iif "lo"; oif != "lo"; iifname "eth*"; oifname { "eth0", "lo" }; meta pkttype broadcast
meta skuid { 0, 1 }; meta priority none; meta length 40-80; meta protocol ip; meta nfproto ipv6; meta l4proto { tcp, 47 }
meta hour "08:00"-"17:00"; meta day "Monday"; meta mark & 0x4000 == 0x4000; meta mark & 0xc000 != 0; meta ipsec exists
meta random < 100; meta cgroup 1; fib daddr type local; fib daddr . iif type != local; fib saddr . iif oif missing
frag more-fragments 1; exthdr hbh exists; rt type 0; hbh nexthdr 6; tcp option maxseg size 1-500
tcp option sack-permitted exists; ip option lsrr ptr 1; sctp chunk data exists; sctp chunk data flags 1; rt ip nexthop 1.2.3.4
rt ipsec exists; socket transparent 1; socket mark 1; osf name "Linux"; osf ttl skip name "Linux"; ipsec in reqid 1
ether saddr 00:11:22:33:44:55; ether type ip; vlan id 1; @nh,0,8 & 0xf0 == 0x40; @th,16,16 { 1, 2 }; @ll,0,48 0x112233445566
udp length 10; esp spi 1; ah spi 1; comp cpi 1; igmp type leave-group; limit rate 5/minute burst 7 packets
limit rate over 5/second; limit rate 10 mbytes/second burst 5 kbytes; quota over 10 mbytes; limit name "l1"; quota name "q1"
ip saddr . meta mark { 1.1.1.1 . 0x1 }; iifname . meta mark { "eth0" . 0x1 }; numgen inc mod 3 offset 2 < 4`
  .split(/[;\n]/)
  .flatMap((text) => text.trim() || []);

const ACTIONS = `
counter; counter name "c1"; log; log prefix "a: { b" level info flags all; log group 2 snaplen 100 queue-threshold 5
log flags tcp sequence,options flags ip options; meta mark set 0x1; meta mark set meta mark and 0xff; ct mark set meta mark
meta mark set ct mark and 0xf0 xor 0x10; meta priority set 1:2; ip dscp set cs1; ip ttl set 64; ct zone set 1
ct event set new,destroy; tcp option maxseg size set 1360; meta mark set ip saddr map { 1.1.1.1 : 1 }; meta nftrace set 1
meta mark set jhash ip saddr . ip daddr mod 2 seed 0xabc offset 3; meta mark set numgen random mod 2; ct helper set "h1"
add @d { ip saddr . tcp dport timeout 10m }; update @dl { ip saddr limit rate 5/second }; add @dl { ip saddr ct count over 2 }
delete @d { ip saddr . tcp dport }; synproxy mss 1460 wscale 7 timestamp sack-perm; meta mark set meta mark << 3`
  .split(/[;\n]/)
  .flatMap((text) => text.trim() || []);

const ENDS = `
accept; drop; return; continue; jump x; goto x; reject; reject with icmp host-unreachable; reject with icmpv6 no-route
reject with icmpx admin-prohibited; meta l4proto tcp reject with tcp reset; ip daddr . meta l4proto . th dport vmap @m
tcp dport vmap { 22 : accept, 80-90 : drop, * : jump x }; ct state vmap { established : accept, invalid : drop }
numgen random mod 2 vmap { 0 : goto x, 1 : jump x }; symhash mod 2 vmap { 0 : goto x, 1 : accept }; notrack`
  .split(/[;\n]/)
  .flatMap((text) => text.trim() || []);

/** These are valid in chains of nat alone. */
const TRANSLATIONS = `
dnat ip to 1.2.3.4; dnat ip6 to fd00::1; tcp dport 80 dnat ip to 1.2.3.4:8080; tcp dport 80 dnat ip6 to [fd00::1]:80
tcp dport 80 dnat ip to 1.2.3.4-1.2.3.9:80-90 random,persistent; dnat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }
tcp dport 80 dnat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }:80; tcp dport 80 dnat ip to 1.2.3.4:tcp dport map { 80 : 8080 }
meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 1.1.1.1 . 80, 1 : 2.2.2.2 . 90 }; redirect
meta l4proto tcp dnat ip addr . port to ip daddr map @mm; dnat ip prefix to ip daddr map { 10.0.0.0/24 : 10.1.0.0/24 }
tcp dport 80 redirect to :8080; tcp dport 80 redirect to :80-90 random`
  .split(/[;\n]/)
  .flatMap((text) => text.trim() || []);

const COMMENTS = ['comment "a # { handle 5"', 'comment "shop/web:http -> 10.0.0.1"'];
const SKIP = netnsSkip || skipWithoutTool("nft", "nftables");

const FRAME = `
table inet t {
  counter c1 { packets 0 bytes 0
  }
  quota q1 { over 10 mbytes
  }
  limit l1 { rate 5/second
  }
  ct helper h1 { type "ftp" protocol tcp; l3proto ip
  }
  set s { type ipv4_addr; flags interval; comment "a, { b"; elements = { 10.0.0.0/8, 192.168.1.1-192.168.1.9, 1.2.3.4 }
  }
  set d { type ipv4_addr . inet_service; flags timeout,dynamic; timeout 90s; size 65535
  }
  set dl { type ipv4_addr; flags dynamic; size 100
  }
  map mm { type ipv4_addr : ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 : 1.1.1.1 . 80, * : 2.2.2.2 . 90 }
  }
  chain x {
  }
  map m { type ipv4_addr . inet_proto . inet_service : verdict; comment "m"
    elements = { 1.1.1.1 . tcp . 80 comment "shop/web:http" : goto x, 1.1.1.2 . udp . 53 : drop }
  }
  chain a { type filter hook prerouting priority raw + 5; policy drop;
  }
  chain b { type nat hook prerouting priority dstnat - 5; policy accept;
  }
  chain c { type nat hook output priority -95;
  }
  chain d { type filter hook forward priority security;
  }
}
table ip6 other { comment "another"
  set ports { typeof tcp dport; elements = { 80, 443 }
  }
  chain x {
  }
}
`;

/** Sorted keys, without what only one of the two forms has: handles, lines, values of counters, and the usual rejection. */
function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable);
  const found = named(value);
  if (found?.name === "counter" && isObject(found.body) && found.body.map === undefined) return { counter: null };
  if (found?.name === "reject" && isObject(found.body) && found.body.expr === "port-unreachable")
    return { reject: null };
  if (!isObject(value)) return value;
  const entries = Object.entries(value).filter(([key]) => !["handle", "lines", "text"].includes(key));
  return Object.fromEntries(entries.sort().map(([key, one]) => [key, comparable(one)]));
}

/** In how many parts a listing is cut. */
const CUTS = 12;
const KINDS = new Set(["set", "map", "chain", "rule"]);

/** What both forms have of every object that decides about packets. nft 1.0.6 leaves some flags of sets out of JSON. */
function decisive(objects: readonly unknown[]): unknown[] {
  return objects
    .flatMap((object) => {
      const found = named(object);
      if (found === undefined || !isObject(found.body)) return [];
      const { size, "gc-interval": interval, flags, stmt, ...body } = found.body;
      return KINDS.has(found.name) ? [comparable({ [found.name]: body })] : [];
    })
    .sort((a, b) => order(a).localeCompare(order(b)));
}

/** Chains precede rules in JSON; rules keep their order, which the stable sort does not touch. */
function order(object: unknown): string {
  const found = named(object);
  const body = isObject(found?.body) ? found.body : {};
  return [found?.name, body.family, body.table, body.chain ?? body.name].join(" ");
}

const CONDITION = fc.constantFrom("", ...CONDITIONS);
const RULE = fc
  .tuple(
    CONDITION,
    CONDITION,
    fc.constantFrom("", ...ACTIONS),
    fc.constantFrom("", ...ENDS),
    fc.constantFrom("", ...COMMENTS),
  )
  .map((parts) => parts.filter((part) => part !== "").join(" "));
const CHAINS = ["inet t a", "inet t d", "inet t x", "ip6 other x"];

test("random rulesets are read from nft's text as from its JSON", { skip: SKIP, timeout: 240_000 }, async (t) => {
  const { exec } = await netnsFor(t, "listing");
  const nft = async (args: readonly string[], input?: string) =>
    await exec("nft", args, input === undefined ? {} : { stdin: [input] });
  const load = async (rules: readonly (readonly [chain: string, rule: string])[]): Promise<number> => {
    assert.equal((await nft(["-f", "-"], `flush ruleset\n${FRAME}`)).status, 0);
    let count = 0;
    // Some contradict themselves, and some need a kernel that has the feature.
    for (const [chain, rule] of rules) {
      if ((await nft(["-f", "-"], `add rule ${chain} ${rule}\n`)).status === 0) count += 1;
    }
    return count;
  };
  const check = async () => {
    const printed = async (line: string) => (await nft(line.split(" "))).stdout;
    const wanted: unknown = JSON.parse(await printed("-j list ruleset"));
    const objects = decisive(isObject(wanted) && Array.isArray(wanted.nftables) ? wanted.nftables : []);
    const lists = (await Promise.all(["", "-a ", "-s "].map((flag) => printed(`${flag}list ruleset`)))).concat(
      (await Promise.all(["inet t", "ip6 other"].map((table) => printed(`-a -s list table ${table}`)))).join(""),
    );
    for (const listing of lists) {
      const read = readListing(listing);
      assert.deepEqual(read.gaps, []);
      assert.doesNotMatch(JSON.stringify(read.objects), /opaque/);
      assert.deepEqual(decisive(read.objects), objects);
    }
    checkCut(lists[0] ?? "", objects);
  };
  /** Wherever a listing is cut inside a table, that is said, and what is read before the last line is what was there. */
  const checkCut = (listing: string, objects: readonly unknown[]) => {
    const known = new Set(objects.map((object) => JSON.stringify(object)));
    for (let at = 1; at < CUTS; at++) {
      const text = listing.slice(0, Math.floor((listing.length * at) / CUTS));
      const { objects: read, gaps } = readListing(text);
      if (!/(^|\n)}\s*$/.test(text)) assert.ok(gaps.length > 0, `cut after ${JSON.stringify(text.slice(-80))}`);
      const wrong = decisive(read).filter(
        (object) => !known.has(JSON.stringify(object)) && order(object).startsWith("rule"),
      );
      assert.ok(wrong.length <= 1, JSON.stringify(wrong));
    }
  };

  const all = [...CONDITIONS, ...ACTIONS, ...ENDS].map((rule) => ["inet t d", rule] as const);
  const ofNat = TRANSLATIONS.map((rule) => ["inet t b", rule] as const);
  assert.ok((await load([...all, ...ofNat])) > 0.7 * (all.length + ofNat.length));
  await check();
  const strange = (await nft(["list", "ruleset"])).stdout.replace("\t\tnotrack", "\t\tnotrack frobnicate 5");
  const [gap = ""] = readListing(strange).gaps.concat(
    readListing(strange).objects.flatMap(
      (object) => /"(line \d+: [^"]*frobnicate[^"]*)"/.exec(JSON.stringify(object))?.[1] ?? [],
    ),
  );
  assert.match(gap, /^line \d+: .*frobnicate/);
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.constantFrom(...CHAINS), RULE), { minLength: 5, maxLength: 12 }),
      fc.array(fc.constantFrom(...ofNat), { maxLength: 5 }),
      async (rules, translations) => {
        await load([...rules, ...translations]);
        await check();
      },
    ),
    { numRuns: RUNS },
  );
});
